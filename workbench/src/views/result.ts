/** One result of any kind: its view, and what can be done with it here. */

import { get } from "../ask";
import { field, h, replace, select, type Child } from "../dom";
import { during, link, remember } from "../page";
import { claim, testAgain, type PlacedClaim } from "../parts/claim";
import { componentLink, staticPage, viewOf } from "../parts/sections";
import type { Query } from "../address";

const ANY = "any";

export function result(place: Element, query: Query): void {
  const path = query["path"] ?? "";
  void during(place, "Reading the result …", async () => {
    const answer = await get("result", { path });
    const subject: Query = answer.subject;
    const about = subject["specimen"] ? (name: string) => [componentLink(name, { ...subject, path }), answer.claims ? [" · ", link("Its claims", "result", { path, component: name })] : null] : undefined;
    return h("article", {},
      h("p", { class: "path" }, path),
      h("h1", {}, answer.view.title),
      h("p", { class: "ways" }, answer.circuit ? [link("The circuit as a graph: threshold, pin, prune, faithfulness", "circuit", { path }), " · "] : null, answer.asked ? [askAgain(answer.asked), " · "] : null, staticPage(answer.page)),
      answer.claims ? [viewOf({ ...answer.view, command: null }, { page: answer.page, about }), claims(answer.claims, query), again(answer.view.command)] : viewOf(answer.view, { page: answer.page, about }),
      answer.cases?.length ? cases(answer.cases, path) : null);
  });
}

interface Claims {
  components: string[];
  counts: number[];
  kinds: string[];
  seed: number;
}

/** The claims of an explanation, those that are asked for, each with its evidence; most can be tested again. */
function claims(about: Claims, query: Query): HTMLElement {
  const path = query["path"] ?? "";
  let chosen = { verdict: query["verdict"] ?? ANY, kind: query["kind"] ?? ANY, component: query["component"] ?? ANY };
  const list = h("div", {});
  let asked = 0;
  const told = (one: PlacedClaim) => claim(one, one.refusal === null ? testAgain(path, one.component, one.number, about.seed) : h("p", { class: "quiet refusal" }, `Cannot be tested again: ${one.refusal}.`));
  const draw = () => {
    const own = ++asked;
    const kept = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== ANY));
    remember("result", { path, ...kept });
    void during(list, "Reading the claims …", async () => {
      const page = await get("claims", { path, ...kept });
      const shown = h("div", {}, page.claims.map(told));
      const more: HTMLButtonElement = h("button", { type: "button", onclick: async () => {
        const next = await get("claims", { path, ...kept, start: String(shown.childElementCount) });
        if (own !== asked) return; // the filters are others by now
        shown.append(...next.claims.map(told));
        say(shown.childElementCount);
      } }, "Show more");
      const status = h("p", { role: "status" });
      const say = (count: number) => {
        replace(status, `${page.matching} of ${page.total} claims${count < page.matching ? `; the first ${count} are shown` : ""}`);
        more.hidden = count >= page.matching;
      };
      say(page.claims.length);
      return [status, shown, more];
    });
  };
  const choose = (name: keyof typeof chosen, options: string[]) => field(name, select([ANY, ...options], chosen[name], (value) => { chosen = { ...chosen, [name]: value }; draw(); }));
  draw();
  return h("section", { id: "claims" }, h("h2", { tabindex: -1 }, "Claims"), h("form", { class: "filters" }, choose("verdict", ["supported", "refuted", "undecided", "untested"]), choose("kind", about.kinds), choose("component", about.components)), list);
}

/** The form of a what-if, filled in as it was asked. */
function askAgain(request: any): HTMLElement {
  const { kind = "zero", at = "", n = 16, prompt = "", source = "" } = request.options ?? {};
  return link("Ask it again", "what-if", { specimen: request.specimen ?? "", behaviour: request.behaviour ?? "", components: (request.components ?? []).join(","), kind, at: String(at), n: String(n), seed: String(request.seed ?? 0), prompt: spoken(String(prompt)), source: spoken(String(source)) });
}

/** A prompt as a form has it: a list of tokens with spaces between them, a text as it is. */
export function spoken(prompt: string): string {
  try {
    const tokens = JSON.parse(prompt);
    return Array.isArray(tokens) ? tokens.join(" ") : prompt;
  } catch {
    return prompt;
  }
}

/** Explanations of a benchmark that no row of its table leads to. */
function cases(names: string[], path: string): Child {
  return [h("h2", {}, "Explanations"), h("ul", { class: "cases" }, names.map((name) => h("li", {}, link(name.replace(/\.json$/, ""), "result", { path: `${path}/explanations/${name}` }))))];
}

/** The command that gives the same result. */
function again(command: string | null): Child {
  return command ? [h("h2", {}, "How to reproduce this"), h("pre", {}, command)] : null;
}
