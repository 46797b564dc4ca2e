/** The model as a map: a column for each layer, a row for each head, the MLPs below. */

import { h, scrolling } from "../dom";
import { signed } from "../numbers";

export interface MapOptions {
  layers: number;
  heads: number;
  values: Map<string, number>;
  chosen: Set<string>;
  marked: Set<string>;
  pick: (component: string) => void;
}

export function nameOf(layer: number, head: number, heads: number): string {
  return head === heads ? `L${layer}_MLP` : `L${layer}H${head}`;
}

/** Shades from 0 to 8 by the size of a value, on a square-root scale so that one giant does not hide the rest. */
export function shade(value: number, largest: number): number {
  return largest > 0 ? Math.round(8 * Math.sqrt(Math.abs(value) / largest)) : 0;
}

export function headMap({ layers, heads, values, chosen, marked, pick }: MapOptions): HTMLElement {
  const largest = Math.max(0, ...[...values.values()].map(Math.abs));
  const header = h("tr", {}, h("th", {}), Array.from({ length: layers }, (_, layer) => h("th", { scope: "col" }, layer)));
  const rows = Array.from({ length: heads + 1 }, (_, head) =>
    h(
      "tr",
      { class: head === heads ? "mlps" : null },
      h("th", { scope: "row" }, head === heads ? "MLP" : `H${head}`),
      Array.from({ length: layers }, (_, layer) => {
        const name = nameOf(layer, head, heads);
        const value = values.get(name);
        const text = value === undefined ? name : `${name}, effect ${signed(value)}`;
        const sign = value !== undefined && value < 0 ? "negative" : "positive";
        const classes = ["cell", `shade${value === undefined ? 0 : shade(value, largest)}`, sign, marked.has(name) ? "marked" : ""].join(" ");
        return h("td", {}, h("button", { type: "button", class: classes, title: text, "aria-label": text, "aria-pressed": chosen.has(name) ? "true" : "false", "data-component": name, onclick: () => pick(name) }));
      }),
    ),
  );
  const key = ["Columns are layers, rows are heads, MLPs below.", values.size ? " Darker: larger effect; hatched: negative." : "", marked.size ? " Framed: the circuit." : ""].join("");
  return h("div", {}, h("p", { class: "quiet" }, key), scrolling(h("table", { class: "headmap", "aria-label": "map of the model" }, h("thead", {}, header), h("tbody", {}, rows))));
}
