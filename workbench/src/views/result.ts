/** One result: an explanation with its claims, a discovery, a circuit of neurons, a sweep, a what-if, or the scorecard of a benchmark. */

import { get } from "../ask";
import { field, h, replace, select, scrolling } from "../dom";
import { figure, number, signed, whole, type Figure } from "../numbers";
import { during, go, link, long, remember, verdict } from "../page";
import { bothSides, claim, testAgain, type PlacedClaim } from "../parts/claim";
import { headMap } from "../parts/headmap";
import { measuredTable } from "./circuit";
import { placeOf } from "./component";
import { whatIfTable } from "./whatif";
import type { Query } from "../address";

const ANY = "any";

export function result(place: Element, query: Query): void {
  const path = query["path"] ?? "";
  void during(place, "Reading the result …", async () => {
    const answer = await get("result", { path });
    const title = h("p", { class: "path" }, path);
    if (answer.kind === "explanation") return [title, explanation(answer, query)];
    if (answer.kind === "sweep") return [title, sweep(answer)];
    if (answer.kind === "discovery") return [title, discovery(answer, path)];
    if (answer.kind === "neurons") return [title, neurons(answer)];
    if (answer.kind === "what-if") return [title, h("h1", {}, "What if"), whatIfTable(answer.document), asking(answer.document.request, path)];
    if (answer.kind === "faithfulness") return [title, faithfulness(answer)];
    if (answer.kind === "retest") return [title, retest(answer.document)];
    if (answer.kind === "benchmark") return [title, benchmark(answer, path)];
    return [title, h("h1", {}, answer.kind), h("pre", {}, answer.text)];
  });
}

function explanation(answer: any, query: Query): HTMLElement {
  const document = answer.document;
  const about: { counts: number[]; kinds: string[] } = answer.claims;
  const path = query["path"] ?? "";
  const parts: string[] = document.components.map((part: any) => part.id);
  let chosen = { verdict: query["verdict"] ?? ANY, kind: query["kind"] ?? ANY, component: query["component"] ?? ANY };
  const list = h("div", {});
  let asked = 0;
  const told = (one: PlacedClaim) => claim(one, one.refusal === null ? testAgain(path, one.component, one.number, document.seed) : h("p", { class: "quiet refusal" }, `Cannot be tested again: ${one.refusal}.`));
  const draw = () => {
    const own = ++asked;
    const kept = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== ANY));
    remember("result", { path, ...kept });
    void during(list, "Reading the claims …", async () => {
      const page = await get("claims", { path, ...kept });
      const claims = h("div", {}, page.claims.map(told));
      const more: HTMLButtonElement = h("button", { type: "button", onclick: async () => {
        const next = await get("claims", { path, ...kept, start: String(claims.childElementCount) });
        if (own !== asked) return; // the filters are others by now
        claims.append(...next.claims.map(told));
        say(claims.childElementCount);
      } }, "Show more");
      const status = h("p", { role: "status" });
      const say = (shown: number) => {
        replace(status, `${page.matching} of ${page.total} claims${shown < page.matching ? `; the first ${shown} are shown` : ""}`);
        more.hidden = shown >= page.matching;
      };
      say(page.claims.length);
      return [status, claims, more];
    });
  };
  const choose = (name: keyof typeof chosen, options: string[]) => field(name, select([ANY, ...options], chosen[name], (value) => { chosen = { ...chosen, [name]: value }; draw(); }));
  draw();
  return h("article", {},
    h("h1", {}, answer.subject || document.specimen),
    h("p", { class: "lede" }, long(document.task_description)),
    answer.summary ? summary(answer.summary) : null,
    document.program ? h("pre", {}, long(document.program)) : null,
    h("p", {}, link("The circuit as a graph", "circuit", { path })),
    h("h2", {}, "Components"),
    scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["component", "role", "verdict", "claims", "note"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, document.components.map((part: any, at: number) => h("tr", {}, h("th", { scope: "row" }, placeOf(part.id) ? link(part.id, "component", { specimen: document.request?.specimen ?? document.specimen, behaviour: document.behaviour ?? "", component: part.id, path }) : part.id), h("td", {}, part.role ?? part.tag ?? "no tag"), h("td", {}, verdict(part.verdict)), h("td", { class: "number" }, about.counts[at]), h("td", {}, long(part.note))))))),
    h("h2", {}, "Claims"),
    h("form", { class: "filters" }, choose("verdict", ["supported", "refuted", "untested"]), choose("kind", about.kinds), choose("component", parts)),
    list,
    again(answer.command));
}

/** What the first screen of the evidence page says beyond the task: what carries it, the path, what is not established. */
function summary(about: { sentences: string[]; path: string | null; gaps: string[] }): HTMLElement {
  return h("div", { class: "summary" },
    about.sentences.map((one) => h("p", {}, one)),
    about.path ? h("p", {}, `Main path: ${about.path}`) : null,
    about.gaps.length ? h("details", {}, h("summary", {}, "Not established"), h("ul", {}, about.gaps.map((one) => h("li", {}, one)))) : null);
}

function sweep(answer: any): HTMLElement {
  const document = answer.document;
  const values = new Map<string, number>(document.components.map((row: any) => [row.id, row.effect]));
  const { layers, heads } = shape([...values.keys()]);
  const to = (name: string) => go("what-if", { specimen: document.specimen, behaviour: document.behaviour ?? "", components: name, kind: document.kind });
  return h("article", {},
    h("h1", {}, `${answer.subject}: ${document.kind} ablation`),
    h("p", {}, `Clean score ${number(document.baseline)} ${document.unit}, ${document.n} prompts. Choose a component to replace it.`),
    document.pairs ? null : headMap({ layers, heads, values, chosen: new Set(), marked: new Set(), pick: to }),
    effectTable(document.components),
    again(answer.command));
}

export function effectTable(rows: any[]): HTMLElement {
  const sorted = [...rows].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).slice(0, 20);
  return scrolling(h("table", { class: "list" }, h("caption", {}, "The largest effects: clean minus edited score"), h("thead", {}, h("tr", {}, ["component", "effect", "95 % interval"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, sorted.map((row) => h("tr", {}, h("th", { scope: "row" }, row.id), h("td", { class: "number" }, signed(row.effect)), h("td", {}, row.ci_low === null ? "" : `[${signed(row.ci_low)}, ${signed(row.ci_high)}]`))))));
}

/** Layers and heads that component names need at least. */
export function shape(names: string[]): { layers: number; heads: number } {
  let layers = 0;
  let heads = 0;
  for (const name of names) {
    const found = /^L(\d+)(?:H(\d+)|_MLP)$/.exec(name);
    if (!found) continue;
    layers = Math.max(layers, Number(found[1]) + 1);
    if (found[2] !== undefined) heads = Math.max(heads, Number(found[2]) + 1);
  }
  return { layers, heads };
}

/** A table whose first column names the rows. */
function sheet(columns: string[], rows: (string | Node)[][]): HTMLElement {
  return scrolling(h("table", { class: "list" },
    h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => h(place ? "td" : "th", place ? {} : { scope: "row" }, cell)))))));
}

interface Section {
  title: string;
  words: string[];
  sheets: { columns: string[]; rows: (string | number | null)[][] }[];
}

function discovery(answer: any, path: string): HTMLElement {
  const document = answer.document;
  const values = new Map<string, number>(document.components.map((row: any) => [row.id, row.score]));
  return h("article", {},
    h("h1", {}, `${answer.subject}: circuit by ${document.method}`),
    h("dl", { class: "facts" }, answer.facts.map(([name, words]: [string, string]) => [h("dt", {}, name), h("dd", {}, words)])),
    h("p", {}, link("The circuit as a graph: threshold, pin, prune, faithfulness", "circuit", { path })),
    headMap({ layers: document.layers, heads: document.heads, values, chosen: new Set(), marked: new Set(), pick: (name) => go("what-if", { specimen: document.specimen, behaviour: document.behaviour ?? "", components: name, kind: "resample" }) }),
    answer.sections.map((one: Section) => [
      h("h2", {}, one.title),
      one.words.map((words) => h("p", {}, words)),
      one.sheets.map((table) => sheet(table.columns, table.rows.map((row) => row.map((cell) => (cell === null ? "" : String(cell))))))]),
    again(answer.command));
}

/** How much each number of neurons keeps, and what the strongest do; the page neurons.html beside it draws the curve. */
function neurons(answer: any): HTMLElement {
  const document = answer.document;
  const { specimen, behaviour, method } = document.request;
  const ask = (id: string) => ({ specimen: specimen ?? "", behaviour: behaviour ?? "", components: id, kind: "resample" });
  const share = (value: number) => (Math.abs(value) < 5e-4 ? 0 : value).toFixed(3);
  return h("article", {},
    h("h1", {}, `${answer.subject}: neurons by ${method}`),
    h("p", {}, `${whole(document.size)} of ${whole(document.n_neurons)} neurons keep ${figure(document.share)} of the behaviour on ${document.share.n} held-out prompts; all others are resampled.`),
    sheet(["neurons", "share kept", "most changed", "random"], document.curve.map((point: any) => [whole(point.size), figure({ value: point.share, low: point.low, high: point.high }), share(point.magnitude), share(point.random)])),
    h("h2", {}, "The strongest"),
    sheet(["neuron", `score (${document.unit})`, "raises", "lowers", "fires most at"], (document.details ?? []).map((one: any) => [link(one.id, "what-if", ask(one.id)), figure({ value: one.score, low: one.low, high: one.high }), tokens(one.raises), tokens(one.lowers), strongestToken(one)])),
    again(answer.command));
}

/** Tokens one after the other, each in quotes, so that a leading space is seen. */
function tokens(some: string[]): string {
  return some.map((one) => `'${one}'`).join(" ");
}

function strongestToken(one: { tokens: string[]; activations: number[] }): string {
  const sizes = one.activations.map(Math.abs);
  const place = sizes.indexOf(Math.max(...sizes));
  return place < 0 ? "" : `${one.tokens[place]} (${number(one.activations[place]!)})`;
}

function faithfulness(answer: any): HTMLElement {
  const document = answer.document;
  return h("article", {},
    h("h1", {}, `${answer.subject}: faithfulness of a circuit`),
    measuredTable([{ label: "the circuit", document }]),
    h("p", {}, `Mean score ${number(document.score)} of the circuit, ${number(document.full)} of the model, ${number(document.ablated)} with everything replaced.`),
    again(answer.command));
}

function retest(document: any): HTMLElement {
  return h("article", {},
    h("h1", {}, `${document.specimen}${document.behaviour ? `, ${document.behaviour}` : ""}: a claim about ${document.component} tested again`),
    h("h2", {}, long(document.before.text)), h("h3", {}, `Claim ${document.claim}, ${document.before.kind}`), bothSides(document));
}

function benchmark(answer: any, path: string): HTMLElement {
  const card = answer.document;
  const cases: string[] = answer.cases ?? [];
  return h("article", {},
    h("h1", {}, `bench ${card.benchmark}: ${card.subject}`),
    h("p", {}, `${card.n} cases, ${card.n_error} errors, ${card.cost ? `$${card.cost.toFixed(2)}` : "no cost"}`),
    scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["metric", "value", "n", "baseline"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, Object.entries<Figure & { baseline?: number }>(card.metrics).map(([name, one]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, figure(one)), h("td", { class: "number" }, one.n), h("td", { class: "number" }, one.baseline === undefined ? "" : number(one.baseline))))))),
    cases.length ? [h("h2", {}, "Explanations"), h("ul", { class: "cases" }, cases.map((name) => h("li", {}, link(name.replace(/\.json$/, ""), "result", { path: `${path}/explanations/${name}` }))))] : null);
}

/** How a saved what-if is asked again: on the page, and on the command line. */
function asking(request: any, path: string): HTMLElement[] {
  const { kind = "zero", at = "", n = 16, prompt = "", source = "" } = request.options ?? {};
  const own = (text: unknown) => spoken(String(text));
  const query = { specimen: request.specimen ?? "", behaviour: request.behaviour ?? "", components: (request.components ?? []).join(","), kind, at: String(at), n: String(n), seed: String(request.seed ?? 0), prompt: own(prompt), source: own(source) };
  return [h("p", { class: "quiet" }, link("Ask it again", "what-if", query), ", here or, in the directory that is open, on the command line:"), h("pre", {}, `vesalius what-if --from ${quoted(`${path}/what_if.json`)}`)];
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

/** A word of a command line. */
export function quoted(word: string): string {
  return /^[\w./+-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

/** The command that gives the same result. */
function again(command: string): HTMLElement[] | null {
  return command ? [h("p", { class: "quiet" }, "The same on the command line:"), h("pre", {}, command)] : null;
}
