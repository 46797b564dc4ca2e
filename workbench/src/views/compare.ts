/** Two results side by side, as `vesalius diff` says it. */

import { get } from "../ask";
import { h, scrolling } from "../dom";
import { figure, number, signed } from "../numbers";
import { during, link, long, verdict } from "../page";
import type { Query } from "../address";

export function compare(place: Element, query: Query): void {
  const { a = "", b = "" } = query;
  if (!a || !b) {
    void during(place, "", async () => [h("h1", {}, "Compare"), h("p", {}, "Choose two results of the same kind in the list of ", link("results", "runs"), ".")]);
    return;
  }
  void during(place, "Comparing …", async () => {
    const found = await get("diff", { a, b });
    return [
      h("h1", {}, `Two ${found.kind}s`),
      h("dl", { class: "facts" }, h("dt", {}, "A"), h("dd", {}, link(a, "result", { path: a })), h("dt", {}, "B"), h("dd", {}, link(b, "result", { path: b }))),
      Object.entries<any>(found.asked).map(([name, pair]) => h("p", { class: "quiet" }, `${name}: ${JSON.stringify(pair[0])} in A, ${JSON.stringify(pair[1])} in B`)),
      found.notes.map((note: string) => h("p", { class: "note" }, note)),
      h("h2", {}, `Claims that flipped: ${found.totals.claims_flipped}`),
      h("p", {}, `${found.claims_same} claims have the same verdict, ${found.totals.claims_only} are made in one alone.`),
      rows(["component", "claim", "A", "B"], found.claims_flipped.map((one: any) => [`${one.specimen ? `${one.specimen}: ` : ""}${one.component}`, long(one.text), verdict(one.a), verdict(one.b)])),
      h("h2", {}, `Components that moved: ${found.totals.components_moved}`),
      h("p", {}, `A component has moved if it is ${found.rule}. ${found.components_same} have not.`),
      rows(["component", "what", "A", "B"], found.components_moved.map((one: any) => [`${one.specimen ? `${one.specimen}: ` : ""}${one.component}`, one.what, text(one.a), text(one.b)])),
      h("h2", {}, "Figures"),
      rows(["figure", "A", "B", "B − A", ""], Object.entries<any>(found.metrics).map(([name, pair]) => [name, figure({ value: pair.a, low: pair.a_low, high: pair.a_high }), figure({ value: pair.b, low: pair.b_low, high: pair.b_high }), pair.difference === null ? "" : signed(pair.difference), pair.apart ? "intervals apart" : ""])),
    ];
  });
}

function text(value: unknown): string {
  return value === null ? "–" : typeof value === "number" ? number(value) : String(value);
}

function rows(columns: string[], cells: any[][]): HTMLElement {
  if (!cells.length) return h("p", {}, "None.");
  return scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col" }, one)))), h("tbody", {}, cells.map((row) => h("tr", {}, row.map((cell, at) => (at === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell))))))));
}
