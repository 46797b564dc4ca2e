/** Every result below the directory, with filters; the list is read again every few seconds. */

import { get } from "../ask";
import { field, h, replace, select, scrolling } from "../dom";
import { duration } from "../numbers";
import { during, go, link, remember } from "../page";
import type { Query } from "../address";

interface Row {
  path: string;
  kind: string;
  title: string;
  state: string;
  figures: string;
  done?: number | null;
  total?: number | null;
  cost?: number | null;
  seconds?: number | null;
  modified: number;
  problem: string;
}

const ANY = "any";

export function matches(row: Row, kind: string, state: string, words: string): boolean {
  const text = `${row.path} ${row.title} ${row.figures}`.toLowerCase();
  return (kind === ANY || row.kind === kind) && (state === ANY || row.state === state) && words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

export function runs(place: Element, query: Query): () => void {
  let rows: Row[] = [];
  let kind = query["kind"] ?? ANY;
  let state = query["state"] ?? ANY;
  let words = query["words"] ?? "";
  const picked = new Set<string>();
  const table = h("div", {});
  const compare: HTMLButtonElement = h("button", { type: "button", disabled: true, onclick: () => { const [a, b] = [...picked]; go("compare", { a: a!, b: b! }); } }, "Compare the two chosen");

  const draw = () => {
    remember("runs", { kind: kind === ANY ? "" : kind, state: state === ANY ? "" : state, words });
    const shown = rows.filter((row) => matches(row, kind, state, words));
    replace(table, shown.length ? list(shown) : h("p", {}, rows.length ? "No result matches." : "No results here yet. `vesalius explain`, `discover`, `sweep` and `bench` write some."));
  };
  const list = (shown: Row[]) =>
    scrolling(h("table", { class: "list" },
      h("caption", {}, `${shown.length} of ${rows.length} results, the latest first`),
      h("thead", {}, h("tr", {}, ["", "result", "kind", "state", "figures", "cost", "took", "changed"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, shown.map((row) => h("tr", {},
        h("td", {}, h("input", { type: "checkbox", "aria-label": `compare ${row.path}`, checked: picked.has(row.path), onchange: (event: Event) => { (event.target as HTMLInputElement).checked ? picked.add(row.path) : picked.delete(row.path); compare.disabled = picked.size !== 2; } })),
        h("th", { scope: "row" }, row.state === "unreadable" ? row.path : link(row.path, "result", { path: row.path }), h("span", { class: "quiet" }, row.title)),
        h("td", {}, row.kind),
        h("td", {}, row.total ? `${row.state}, ${row.done ?? 0} of ${row.total}` : row.state),
        h("td", {}, row.problem || row.figures),
        h("td", { class: "number" }, row.cost ? `$${row.cost.toFixed(2)}` : ""),
        h("td", { class: "number" }, duration(row.seconds)),
        h("td", {}, new Date(1000 * row.modified).toLocaleString()))))));

  const refresh = async () => {
    const answer = await get("results");
    rows = answer.results;
    draw();
  };
  void during(place, "Looking for results …", async () => {
    rows = (await get("results")).results;
    const kinds = [ANY, ...new Set(rows.map((row) => row.kind))];
    draw();
    return [
      h("h1", {}, "Results"),
      h("form", { class: "filters", onsubmit: (event: Event) => event.preventDefault() },
        field("kind", select(kinds, kind, (value) => { kind = value; draw(); })),
        field("state", select([ANY, "finished", "unfinished", "unreadable"], state, (value) => { state = value; draw(); })),
        field("words", h("input", { type: "search", value: words, oninput: (event: Event) => { words = (event.target as HTMLInputElement).value; draw(); } })),
        compare),
      table,
    ];
  });
  const timer = setInterval(() => void refresh().catch(() => undefined), 5000);
  return () => clearInterval(timer);
}
