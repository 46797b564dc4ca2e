/** A model: its map, a prompt typed by the user with its tokens and answer, attention, what components write. */

import { get, post } from "../ask";
import { field, h, select, scrolling } from "../dom";
import { during, go, link, remember } from "../page";
import { attentionView, lensTable, shown } from "../parts/attention";
import { nameOf, redraw } from "../parts/headmap";
import { viewOf } from "../parts/sections";
import type { Query } from "../address";

export function specimens(place: Element): void {
  void during(place, "Listing the specimens …", async () => {
    const { specimens: list, behaviours } = await get("specimens");
    return [
      h("h1", {}, "Specimens"),
      h("p", {}, "Models that need no download. A natural model is studied for a behaviour."),
      scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["specimen", "kind", "layers", "heads", "width", "components"].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, list.map((one: any) => h("tr", {},
          h("th", { scope: "row" }, one.kind === "natural" ? [one.name, " for ", behaviours.map((other: any) => [link(other.name, "specimen", { specimen: one.id, behaviour: other.name }), " "])] : link(one.name, "specimen", { specimen: one.name })),
          h("td", {}, one.kind), h("td", { class: "number" }, one.layers), h("td", { class: "number" }, one.heads), h("td", { class: "number" }, one.d_model), h("td", { class: "number" }, one.components.length)))))),
    ];
  });
}

/** What a prompt typed for a listed vocabulary means: tokens with spaces between them, numbers as numbers. */
export function tokensOf(text: string, vocabulary: unknown[]): (string | number)[] {
  const numbers = new Set(vocabulary.filter((one): one is number => typeof one === "number"));
  return text.trim().split(/[\s,]+/).filter(Boolean).map((word) => (numbers.has(Number(word)) && !vocabulary.includes(word) ? Number(word) : word));
}

export function specimen(place: Element, query: Query): void {
  const name = query["specimen"] ?? "";
  const behaviour = query["behaviour"] || null;
  void during(place, `Loading ${name} …`, async () => {
    const about = await post("specimen", { specimen: name, behaviour });
    const listed = Array.isArray(about.vocab);
    const first = about.examples?.[0]?.input;
    let prompt: string = query["prompt"] ?? (Array.isArray(first) ? first.join(" ") : String(first ?? ""));
    let layer = Number(query["layer"] ?? 0);
    let kind = query["kind"] ?? "zero";
    let n = Number(query["n"] ?? 8);
    let swept: { values: Map<string, number>; unclear: Set<string> } = { values: new Map(), unclear: new Set() };
    let focus: string | null = query["component"] ?? null;
    const own = () => (listed ? tokensOf(prompt, about.vocab) : prompt);
    const asked = () => ({ specimen: name, behaviour, prompt: own() });
    const keep = () => remember("specimen", { specimen: name, behaviour: behaviour ?? "", prompt, layer: String(layer), kind, n: String(n), component: focus ?? "" });
    const answer = h("div", { class: "answer" });
    const attention = h("div", {});
    const lens = h("div", {});
    const map = h("div", {});
    const effects = h("div", {});

    const drawMap = () => redraw(map, { layers: about.layers, heads: about.heads, ...swept, chosen: new Set(focus ? [focus] : []), marked: new Set(listed ? about.components : []), pick: (component) => {
      focus = component;
      const found = /^L(\d+)/.exec(component);
      layer = Number(found?.[1] ?? 0);
      layers.value = String(layer);
      drawMap();
      drawAttention();
      drawLens();
    } });
    const drawAnswer = () => during(answer, "Running the prompt …", async () => {
      keep();
      const seen = await post("look", asked());
      return [
        h("p", {}, `${seen.tokens.length} tokens: `, seen.tokens.map((one: string) => [h("code", { class: "token" }, shown(one)), " "])),
        seen.likely?.length
          ? h("ol", { class: "likely" }, seen.likely.map((one: any) => h("li", {}, h("code", {}, shown(one.token)), ` ${(100 * one.probability).toFixed(1)} %`)))
          : h("p", {}, "Outputs: ", h("code", {}, seen.outputs.map((one: any) => (typeof one === "number" ? +one.toFixed(3) : one)).join("  "))),
      ];
    });
    const drawAttention = () => during(attention, `Attention of layer ${layer} …`, async () => {
      keep();
      const seen = await post("attention", { ...asked(), layer });
      return [focus ? h("p", {}, link(`More about ${focus}`, "component", { specimen: name, behaviour: behaviour ?? "", component: focus, prompt })) : null, attentionView(seen.tokens, seen.heads, focus)];
    });
    const drawLens = () => {
      if (listed || !focus) return;
      const component = focus;
      void during(lens, `What ${component} writes …`, async () => {
        const seen = await post("lens", { ...asked(), components: [component] });
        return lensTable(component, seen.tokens, seen.components[component]);
      });
    };
    const runSweep = () => during(effects, `Replacing ${about.layers * (about.heads + 1)} components on ${n} prompts …`, async (ask) => {
      const found = await ask("sweep", { specimen: name, behaviour, kind, n });
      const map = found.view.sections.find((one: any) => one.kind === "headmap");
      if (map) swept = { values: new Map(Object.entries(map.values)), unclear: new Set(map.unclear) };
      drawMap();
      return viewOf({ ...found.view, sections: found.view.sections.map((one: any) => (one === map ? { ...one, kind: "scale" } : one)) });
    });
    const layers = select(Array.from({ length: about.layers }, (_, one) => String(one)), String(layer), (value) => { layer = Number(value); focus = null; drawMap(); void drawAttention(); });
    drawMap();
    void drawAnswer();
    void drawAttention();
    drawLens();
    const input: HTMLTextAreaElement = h("textarea", { rows: 2, spellcheck: "false" });
    input.value = prompt;
    const run = () => { prompt = input.value; void drawAnswer(); void drawAttention(); drawLens(); };
    input.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); run(); } });
    return [
      h("h1", {}, about.name, behaviour ? `, ${behaviour}` : ""),
      h("p", {}, `${about.layers} layers of ${about.heads} heads and an MLP, width ${about.d_model}. `, link("What if a component were not there?", "what-if", { specimen: name, behaviour: behaviour ?? "", components: focus ?? nameOf(0, about.heads, about.heads) })),
      h("h2", {}, "Map"),
      h("form", { class: "filters", onsubmit: (event: Event) => { event.preventDefault(); void runSweep(); } },
        field("replace by", select(["zero", "mean", "resample"], kind, (value) => { kind = value; keep(); })),
        field("prompts", h("input", { type: "number", min: 1, max: 64, value: n, onchange: (event: Event) => { n = Number((event.target as HTMLInputElement).value); keep(); } })),
        h("button", { type: "submit" }, "Sweep")),
      map, effects,
      h("h2", {}, "A prompt of your own"),
      h("form", { class: "prompt", onsubmit: (event: Event) => { event.preventDefault(); run(); } }, field(listed ? "tokens, with spaces between them" : "text", input), h("button", { type: "submit" }, "Run")),
      answer,
      h("h2", {}, "Attention"),
      h("form", { class: "filters" }, field("layer", layers)),
      attention, lens,
      about.examples?.length ? [h("h2", {}, "Examples"), h("ul", { class: "examples" }, about.examples.slice(0, 5).map((one: any) => h("li", {}, h("code", {}, JSON.stringify(one.input)), " → ", h("code", {}, JSON.stringify(one.output)))))] : null,
      h("p", {}, h("button", { type: "button", onclick: () => go("what-if", { specimen: name, behaviour: behaviour ?? "", components: focus ?? "" }) }, "Replace components of this model …")),
    ];
  });
}
