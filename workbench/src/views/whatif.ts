/** Replace components together and see what the model says then. */

import { post } from "../ask";
import { field, h, select } from "../dom";
import { during, link, remember } from "../page";
import { redraw } from "../parts/headmap";
import { viewOf } from "../parts/sections";
import { tokensOf } from "./specimen";
import type { Query } from "../address";

/** The answer as a result of the directory that is open, or as a file of the reader's. */
function saving(asked: unknown, answer: unknown): HTMLElement {
  const place = h("div", { class: "saving", role: "status" });
  const button: HTMLButtonElement = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    await during(place, "Saving …", async (ask) => {
      const saved = await ask("what-if/save", asked);
      return [h("p", {}, "Saved as ", link(saved.path, "result", { path: saved.path }), ". To ask it again:"), h("pre", {}, saved.command)];
    });
    button.disabled = place.querySelector(".problem") === null;
  } }, "Save among the results");
  const file = h("a", { href: `data:application/json;charset=utf-8,${encodeURIComponent(JSON.stringify(answer, null, 2))}`, download: "what_if.json" }, "Download what_if.json");
  return h("div", { class: "not-saved" }, h("p", {}, button, " ", file), place);
}

export function whatIf(place: Element, query: Query): void {
  const name = query["specimen"] ?? "";
  const behaviour = query["behaviour"] || null;
  if (!name) {
    void during(place, "", async () => [h("h1", {}, "What if"), h("p", {}, "Choose a specimen first: ", h("a", { href: "/specimens" }, "specimens"), ".")]);
    return;
  }
  void during(place, `Loading ${name} …`, async () => {
    const about = await post("specimen", { specimen: name, behaviour });
    const listed = Array.isArray(about.vocab);
    const chosen = new Set((query["components"] ?? "").split(",").filter(Boolean));
    let kind = query["kind"] ?? "zero";
    let at = query["at"] ?? "";
    let n = Number(query["n"] ?? (listed ? 16 : 8));
    let seed = Number(query["seed"] ?? 0);
    let prompt = query["prompt"] ?? "";
    let source = query["source"] ?? "";
    const map = h("div", {});
    const found = h("div", { "aria-live": "polite" });
    const given = (text: string) => (text.trim() === "" ? null : listed ? tokensOf(text, about.vocab) : text);
    const ask = () => {
      remember("what-if", { specimen: name, behaviour: behaviour ?? "", components: [...chosen].join(","), kind, at, n: String(n), seed: String(seed), prompt, source });
      if (!chosen.size) return during(found, "", async () => h("p", {}, "Choose one or more components on the map."));
      return during(found, `Replacing ${[...chosen].join(", ")} …`, async (question) => {
        const asked = { specimen: name, behaviour, components: [...chosen], kind, at: at === "" ? null : /^\d+$/.test(at) ? Number(at) : at, n, seed, prompt: given(prompt), source: given(source) };
        const answer = await question("what-if", asked);
        return [h("h2", {}, `Without ${asked.components.join(", ")}`), viewOf(answer.view), saving(asked, answer.document)];
      });
    };
    const draw = () => redraw(map, { layers: about.layers, heads: about.heads, values: new Map(), chosen, marked: new Set(listed ? about.components : []), pick: (component) => { chosen.has(component) ? chosen.delete(component) : chosen.add(component); draw(); void ask(); } });
    draw();
    void ask();
    const text = (label: string, value: string, changed: (value: string) => void) => field(label, h("input", { type: "text", value, onchange: (event: Event) => { changed((event.target as HTMLInputElement).value); void ask(); } }));
    return [
      h("h1", {}, `What if: ${about.name}${behaviour ? `, ${behaviour}` : ""}`),
      h("form", { class: "filters", onsubmit: (event: Event) => event.preventDefault() },
        field("replace by", select(["zero", "mean", "resample", "patch"], kind, (value) => { kind = value; void ask(); })),
        text("only at (a role, end, or a position)", at, (value) => { at = value; }),
        field("prompts", h("input", { type: "number", min: 1, max: 256, value: n, onchange: (event: Event) => { n = Number((event.target as HTMLInputElement).value); void ask(); } })),
        field("seed", h("input", { type: "number", min: 0, value: seed, onchange: (event: Event) => { seed = Number((event.target as HTMLInputElement).value); void ask(); } })),
        text("a prompt of your own", prompt, (value) => { prompt = value; }),
        text("values from this prompt", source, (value) => { source = value; }),
        h("button", { type: "button", onclick: () => { chosen.clear(); draw(); void ask(); } }, "Choose none")),
      map, found,
    ];
  });
}
