/** One component: where it looks on real tokens, what it writes, and what results say about it. */

import { get, post } from "../ask";
import { field, h, replace, select, scrolling } from "../dom";
import { signed } from "../numbers";
import { during, link, remember, verdict } from "../page";
import { grid, lensTable, shown, type HeadPattern } from "../parts/attention";
import { nameOf } from "../parts/headmap";
import { claim } from "../parts/claim";
import { tokensOf } from "./specimen";
import type { Query } from "../address";

interface Place {
  layer: number;
  head: number | null;
}

export function placeOf(component: string): Place | null {
  const found = /^L(\d+)(?:H(\d+)|_MLP)$/.exec(component);
  return found ? { layer: Number(found[1]), head: found[2] === undefined ? null : Number(found[2]) } : null;
}

/** What attends to a token: the column of the pattern, read downwards. */
export function readers(pattern: number[][], key: number): number[] {
  return pattern.map((row) => row[key] ?? 0);
}

export function component(place: Element, query: Query): void {
  const name = query["specimen"] ?? "";
  const own = query["component"] ?? "";
  const at = placeOf(own);
  if (!name || !at) {
    void during(place, "", async () => [h("h1", {}, "Component"), h("p", {}, "Choose a component on the map of a ", link("specimen", "specimens"), ".")]);
    return;
  }
  const behaviour = query["behaviour"] || null;
  const path = query["path"] ?? "";
  void during(place, `Loading ${name} …`, async () => {
    const about = await post("specimen", { specimen: name, behaviour });
    if (at.layer >= about.layers || (at.head !== null && at.head >= about.heads)) throw new Error(`${own} is not in this model; it has layers 0 to ${about.layers - 1} with heads 0 to ${about.heads - 1} and an MLP each`);
    const listed = Array.isArray(about.vocab);
    const first = about.examples?.[0]?.input;
    let prompt: string = query["prompt"] ?? (Array.isArray(first) ? first.join(" ") : String(first ?? ""));
    const to = (other: string) => ({ specimen: name, behaviour: behaviour ?? "", component: other, prompt, path });
    const asked = () => ({ specimen: name, behaviour, prompt: listed ? tokensOf(prompt, about.vocab) : prompt });
    const keep = () => remember("component", to(own));
    const attention = h("div", {});
    const lens = h("div", {});
    const known = h("div", {});
    const drawAttention = () => during(attention, `Attention of layer ${at.layer} …`, async () => {
      keep();
      const seen = await post("attention", { ...asked(), layer: at.layer });
      return layerView(seen.tokens, seen.heads, at.head === null ? null : own, to);
    });
    const drawLens = () => {
      if (listed) return replace(lens, h("p", { class: "quiet" }, "The logit lens is for text models."));
      void during(lens, `What ${own} writes …`, async () => {
        const seen = await post("lens", { ...asked(), components: [own] });
        return lensTable(own, seen.tokens, seen.components[own]);
      });
    };
    const run = () => { void drawAttention(); drawLens(); };
    run();
    void during(known, "Reading the results …", async () => {
      const { results, atlas } = await get("component", { specimen: name, component: own, behaviour: behaviour ?? "", path });
      return [atlas ? inAtlas(atlas) : null, results.length ? results.map((one: any) => said(one, own)) : h("p", {}, "No explanation or discovery of this specimen in the directory names it.")];
    });
    const input: HTMLTextAreaElement = h("textarea", { rows: 2, spellcheck: "false" });
    input.value = prompt;
    input.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); prompt = input.value; run(); } });
    const names = Array.from({ length: about.layers }, (_, layer) => Array.from({ length: about.heads + 1 }, (_, head) => nameOf(layer, head, about.heads))).flat();
    return [
      h("h1", {}, `${own} of ${about.name}${behaviour ? `, ${behaviour}` : ""}`),
      h("form", { class: "filters" }, field("component", select(names, own, (value) => { history.pushState(null, "", `/component?${new URLSearchParams(to(value))}`); dispatchEvent(new PopStateEvent("popstate")); })),
        h("p", {}, link("The whole model", "specimen", { specimen: name, behaviour: behaviour ?? "", component: own, layer: String(at.layer), prompt }), " · ", link("What if it were not there?", "what-if", { specimen: name, behaviour: behaviour ?? "", components: own }))),
      h("h2", {}, at.head === null ? `Attention of its layer` : "Where it looks"),
      h("form", { class: "prompt", onsubmit: (event: Event) => { event.preventDefault(); prompt = input.value; run(); } }, field(listed ? "tokens, with spaces between them" : "text", input), h("button", { type: "submit" }, "Run")),
      attention,
      h("h2", {}, "What it writes"), lens,
      h("h2", {}, "What results say"), known,
    ];
  });
}

/** Tokens under the mouse or the focus: above, what the token attends to; below, what attends to it. */
function tokensView(tokens: string[], pattern: number[][]): HTMLElement {
  const said = h("p", { role: "status" });
  const attends = h("div", { class: "tokens", role: "group", "aria-label": "tokens; choose one" });
  let chosen = tokens.length - 1;
  const buttons = tokens.map((token, at) => h("button", { type: "button", class: "token two", "data-at": at, onclick: () => draw(at), onmouseenter: () => draw(at), onfocus: () => draw(at),
    onkeydown: (event: KeyboardEvent) => {
      const next = event.key === "ArrowRight" ? at + 1 : event.key === "ArrowLeft" ? at - 1 : event.key === "Home" ? 0 : event.key === "End" ? tokens.length - 1 : null;
      if (next === null || !buttons[next]) return;
      event.preventDefault();
      buttons[next].focus();
    } }, h("span", { class: "weight" }), shown(token), h("span", { class: "weight read" })));
  const few = (weights: number[]) => weights.map((weight, at) => ({ weight, at })).sort((a, b) => b.weight - a.weight).slice(0, 4).filter((one) => one.weight > 0.005).map((one) => `“${shown(tokens[one.at] ?? "")}” ${(100 * one.weight).toFixed(0)} %`).join(", ") || "nothing";
  const draw = (at: number) => {
    chosen = at;
    const row = pattern[at] ?? [];
    const column = readers(pattern, at);
    buttons.forEach((button, place) => {
      button.classList.toggle("query", place === at);
      button.setAttribute("tabindex", place === at ? "0" : "-1");
      const [above, below] = button.querySelectorAll(".weight");
      above.className = `weight w${Math.round(10 * (row[place] ?? 0))}`;
      below.className = `weight read w${Math.round(10 * (column[place] ?? 0))}`;
    });
    replace(said, `“${shown(tokens[chosen] ?? "")}” (position ${chosen}) attends to ${few(row)}. It is attended to from ${few(column)}.`);
  };
  replace(attends, buttons);
  draw(chosen);
  return h("div", {}, attends, said, h("p", { class: "quiet" }, "Bars above: what the chosen token attends to; below, hatched: which tokens attend to it. Arrow keys go from token to token."));
}

function layerView(tokens: string[], heads: HeadPattern[], own: string | null, to: (name: string) => Query): HTMLElement {
  const chosen = heads.find((one) => one.head === own);
  return h("div", { class: "attention" },
    chosen ? tokensView(tokens, chosen.pattern) : h("p", {}, "An MLP reads at its own position; these are the heads of its layer."),
    h("p", { class: "quiet" }, "All heads of the layer: rows attend to columns."),
    h("ul", { class: "heads" }, heads.map((one) => { const anchor = link([grid(one, 84), h("span", {}, one.head)], "component", to(one.head)); anchor.className = "head"; if (one.head === own) anchor.setAttribute("aria-current", "true"); return h("li", {}, anchor); })));
}

/** What the component is whatever the model is used for, and its part in every behaviour that was explained. */
function inAtlas(one: any): HTMLElement {
  const rows = one.parts.map((part: any) => h("tr", {}, h("th", { scope: "row" }, link(part.behaviour, "result", { path: part.path })), h("td", {}, part.role), h("td", {}, verdict(part.verdict))));
  const none = one.explanations ? `None of the ${one.explanations} explanations of this model in the directory describes it.` : "No behaviour of this model has an explanation in the directory.";
  return h("section", { class: "known" },
    h("h3", {}, link(one.path, "result", { path: one.path }), " atlas", one.said ? `: ${one.said}` : ": heads have standard names, MLPs have none"),
    rows.length ? scrolling(h("table", { class: "list" }, h("caption", {}, "Its part in behaviours"), h("tbody", {}, rows))) : h("p", { class: "quiet" }, none));
}

function said(one: any, own: string): HTMLElement {
  const head = one.kind === "explanation"
    ? ["explained by ", one.scientist, one.tag ? [": ", one.tag, " ", verdict(one.verdict)] : ": not among its components"]
    : ["circuit by ", one.method, one.score === undefined ? ": has no score" : `: score ${signed(one.score, 4)}, ${one.rank} of ${one.of}`];
  return h("section", { class: "known" },
    h("h3", {}, link(one.path, "result", { path: one.path }), " ", head),
    one.note ? h("p", {}, one.note) : null,
    (one.claims ?? []).map((each: any) => claim(each)),
    one.n_claims > (one.claims?.length ?? 0) ? h("p", { class: "quiet" }, `${one.n_claims} claims in all.`) : null,
    one.edges.length ? [scrolling(h("table", { class: "list" }, h("caption", {}, `${one.n_edges} edges${one.n_edges > one.edges.length ? `, the strongest ${one.edges.length}` : ""}`),
      h("tbody", {}, one.edges.map(([sender, receiver, score]: [string, string, number]) => h("tr", {}, h("td", {}, sender === own ? h("b", {}, sender) : sender, " → ", receiver.startsWith(own) ? h("b", {}, receiver) : receiver), h("td", { class: "number" }, signed(score))))))), h("p", {}, link("These edges in the circuit", "circuit", { path: one.path }))] : null);
}
