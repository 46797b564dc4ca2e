/** Attention on real tokens: all heads of a layer as small grids, one of them in full under the mouse. */

import { h, replace, scrolling } from "../dom";

export interface HeadPattern {
  head: string;
  pattern: number[][];
}

/** A token as it is shown: spaces and line ends are made visible. */
export function shown(token: string): string {
  return token.replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";
}

export function grid(one: HeadPattern, size: number): SVGElement {
  const n = one.pattern.length;
  const cell = size / n;
  const squares = one.pattern.flatMap((row, query) =>
    row.slice(0, n).map((weight, key) => (weight < 0.02 ? null : h("rect", { x: key * cell, y: query * cell, width: cell, height: cell, class: "shade", "fill-opacity": Math.min(1, weight).toFixed(2) }))),
  );
  return h("svg", { viewBox: `0 0 ${size} ${size}`, width: size, height: size, "aria-hidden": "true" }, h("rect", { width: size, height: size, class: "ground" }), squares);
}

export function attentionView(tokens: string[], heads: HeadPattern[], start: string | null): HTMLElement {
  const said = h("p", {});
  let chosen = heads.find((one) => one.head === start) ?? heads[0]!;
  let query = tokens.length - 1;

  const look = (at: number) => { query = at; draw(); };
  const strip: HTMLElement[] = tokens.map((token, at) => h("button", { type: "button", class: "token", onclick: () => look(at), onmouseenter: () => look(at) }, h("span", { class: "weight" }), shown(token)));
  const large = h("div", { class: "large" }, said, h("div", { class: "tokens", role: "group", "aria-label": "tokens; choose the query" }, strip));

  /** The buttons stay and only their looks change, so that the keyboard keeps its place. */
  const draw = () => {
    const row = chosen.pattern[query] ?? [];
    strip.forEach((button, at) => {
      button.classList.toggle("query", at === query);
      button.title = `${shown(tokens[at] ?? "")}: ${((row[at] ?? 0) * 100).toFixed(1)} %`;
      button.firstElementChild!.className = `weight w${Math.round(10 * (row[at] ?? 0))}`;
    });
    const top = row.map((weight, at) => ({ weight, at })).sort((a, b) => b.weight - a.weight).slice(0, 5).filter((one) => one.weight > 0.005);
    replace(said, h("strong", {}, chosen.head), ` from “${shown(tokens[query] ?? "")}” (position ${query}): `, top.map((one) => `“${shown(tokens[one.at] ?? "")}” ${(100 * one.weight).toFixed(0)} %`).join(", "));
    for (const button of small.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset["head"] === chosen.head));
  };
  const small = h("div", { class: "heads" }, heads.map((one) =>
    h("button", { type: "button", class: "head", "data-head": one.head, "aria-pressed": "false", onclick: () => { chosen = one; draw(); } }, grid(one, 84), h("span", {}, one.head))));
  draw();
  return h("div", { class: "attention" }, small, large);
}

/** What a component writes at each token, under the logit lens. */
export function lensTable(component: string, tokens: string[], places: [string, number][][]): HTMLElement {
  return scrolling(h("table", { class: "list" }, h("caption", {}, `What ${component} writes at each token: the tokens whose logits it raises most`), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"), h("th", { scope: "col" }, "raises"))),
    h("tbody", {}, places.map((top, at) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, shown(tokens[at] ?? ""))), h("td", {}, top.map(([token, gain]) => [h("code", {}, shown(token)), ` ${gain.toFixed(2)}  `])))))));
}
