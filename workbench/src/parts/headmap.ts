/** The model as a map: a column for each layer, a row for each head, the MLPs below. */

import { h, replace, scrolling } from "../dom";
import { signed } from "../numbers";
import shared from "../shared";

export interface MapOptions {
  layers: number;
  heads: number;
  values: Map<string, number>;
  chosen: Set<string>;
  marked: Set<string>;
  /** Those whose interval holds 0: they are grey, however large their mean. */
  unclear?: Set<string>;
  /** What the values are, and what a reader must know of the map. */
  unit?: string;
  key?: string;
  /** What choosing a cell does; without it the cells are for looking. */
  pick: ((component: string) => void) | null;
}

export function nameOf(layer: number, head: number, heads: number): string {
  return head === heads ? `L${layer}_MLP` : `L${layer}H${head}`;
}

/** Shades from 0 to 9 by the size of a value, on a square-root scale so that one giant does not hide the rest. */
export function shade(value: number, largest: number): number {
  return largest > 0 ? Math.round(shared.headmap.shades * Math.sqrt(Math.abs(value) / largest)) : 0;
}

/** The cell that an arrow key leads to; the map does not wrap around. */
export function step(layer: number, head: number, key: string): [number, number] {
  const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const [across, down] = moves[key] ?? [0, 0];
  return [layer + across, head + down];
}

/** Draws the map in `place`; the component that had the focus keeps it. */
export function redraw(place: Element, options: MapOptions): void {
  const active = (place.getRootNode() as Document | ShadowRoot).activeElement;
  const focused = active instanceof HTMLElement && place.contains(active) ? active.dataset["component"] : undefined;
  replace(place, headMap(options));
  if (focused) reach(place, focused);
}

/** One cell is in the order of the tab key; arrow keys lead to the others. */
function reach(map: Element, component: string): void {
  const cell = map.querySelector<HTMLElement>(`[data-component="${component}"]`);
  if (!cell) return;
  for (const other of map.querySelectorAll<HTMLElement>("[data-component]")) other.tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus();
}

export function headMap({ layers, heads, values, chosen, marked, unclear = new Set(), unit = "effect", key, pick }: MapOptions): HTMLElement {
  const first = [...chosen].find((name) => /^L\d+(H\d+|_MLP)$/.test(name)) ?? nameOf(0, 0, heads);
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
        const grey = unclear.has(name);
        const text = value === undefined ? name : `${name}, ${unit} ${signed(value)}${grey ? "; its interval holds 0" : ""}`;
        const sign = value !== undefined && value < 0 ? "negative" : "positive";
        const classes = ["cell", `shade${value === undefined ? 0 : shade(value, largest)}`, sign, grey ? "unclear" : "", marked.has(name) ? "marked" : ""].join(" ");
        return h("td", {}, h("button", { type: "button", class: classes, title: text, "aria-label": text, "aria-pressed": chosen.has(name) ? "true" : "false", "data-component": name, tabindex: name === first ? 0 : -1, onclick: () => pick?.(name) }));
      }),
    ),
  );
  const table = h("table", { class: "headmap", "aria-label": "map of the model", onkeydown: (event: KeyboardEvent) => {
    const at = /^L(\d+)(?:H(\d+)|_MLP)$/.exec((event.target as HTMLElement).dataset["component"] ?? "");
    if (!at || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    reach(table, nameOf(...step(Number(at[1]), at[2] === undefined ? heads : Number(at[2]), event.key), heads));
  } }, h("thead", {}, header), h("tbody", {}, rows));
  const words = key ?? ["Layers across, heads down, MLPs below.", values.size ? "The colour grows with the square root of the size; red: negative." : "", unclear.size ? "Grey: its 95 % interval holds 0." : "", marked.size ? "Framed: the circuit." : ""].filter(Boolean).join(" ");
  return h("div", {}, h("p", { class: "quiet" }, `${words} In a map, arrow keys move.`), scrolling(table));
}
