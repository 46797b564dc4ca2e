/** A run of the functions benchmark: every function with its score, and one of them with its dialogue and its plot. */

import { get } from "../ask";
import { field, h, replace, scrolling, select, type Child } from "../dom";
import { dollars, duration, figure, number, whole, type Figure } from "../numbers";
import { during, link, remember } from "../page";
import { said, type Text } from "../parts/said";
import type { Call } from "./agent";
import type { Query } from "../address";

export interface FunctionRow {
  id: string;
  state: string;
  score: number | null;
  right: boolean | null;
  queries: number | null;
  seconds: number | null;
  problem: string;
}

const ANY = "any";
const AGAIN = 2000;
/** Rows that are drawn at once. */
const MOST = 500;
/** The figures of the run that are shown, where it has them. */
const MAIN = ["success", "exact_match", "unit_test", "interval_found", "false_alarm", "family_named", "queries"];

export function matchesFunction(row: FunctionRow, answers: string, words: string): boolean {
  const kind = row.state === "failed" ? "error" : row.right === null ? "not graded" : row.right ? "right" : "wrong";
  return (answers === ANY || answers === kind) && row.id.toLowerCase().includes(words.trim().toLowerCase());
}

export function mark(row: FunctionRow): string {
  if (row.state === "failed") return "error";
  if (row.right === null) return "not graded yet";
  return row.right ? "✓ right" : row.score ? `✗ ${number(row.score, 2)}` : "✗ wrong";
}

export function functions(place: Element, query: Query): () => void {
  const path = query["path"] ?? "";
  if (!path) {
    void during(place, "Looking for runs …", runsOfFunctions);
    return () => undefined;
  }
  let chosen = query["function"] ?? "";
  let answers = query["answers"] ?? ANY;
  let words = query["words"] ?? "";
  let run: any = null;
  let drawn = "";
  let timer = 0;
  let left = false;
  let asked = 0;
  const head = h("div", {});
  const list = h("div", { class: "functions-list" });
  const one = h("div", { class: "function", "aria-live": "polite" });
  const here = () => ({ path, function: chosen, answers: answers === ANY ? "" : answers, words });

  const choose = (id: string) => {
    chosen = id;
    remember("functions", here());
    for (const button of list.querySelectorAll("button")) button.setAttribute("aria-pressed", String((button as HTMLElement).dataset["function"] === id));
    const number = ++asked;
    void during(one, "Reading the dialogue …", async () => {
      const answer = await get("function", { path, function: id });
      return number === asked ? details(answer, path) : null;
    });
  };
  const drawList = () => {
    remember("functions", here());
    const shown = run.functions.filter((row: FunctionRow) => matchesFunction(row, answers, words));
    const focused = list.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset["function"] : undefined;
    replace(list,
      h("p", { class: "quiet" }, `${shown.length} of ${run.functions.length} functions${shown.length > MOST ? `; the first ${MOST} are shown` : ""}`),
      h("ul", { class: "plain" }, shown.slice(0, MOST).map((row: FunctionRow) => h("li", {}, h("button", { type: "button", "data-function": row.id, "aria-pressed": String(row.id === chosen), disabled: row.state === "failed", title: row.problem || null, onclick: () => choose(row.id) }, h("code", {}, row.id), h("span", {}, mark(row)))))));
    if (focused) (list.querySelector(`[data-function="${CSS.escape(focused)}"]`) as HTMLElement | null)?.focus();
  };
  list.addEventListener("keydown", (event: KeyboardEvent) => {
    const buttons = [...list.querySelectorAll("button:not(:disabled)")] as HTMLElement[];
    const at = buttons.indexOf(document.activeElement as HTMLElement);
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step || at < 0) return;
    event.preventDefault();
    buttons[at + step]?.focus();
  });

  const look = async () => {
    const answer = await get("functions", { path });
    if (left) return;
    const now = JSON.stringify(answer);
    if (now === drawn) return;
    drawn = now;
    run = answer;
    replace(head, heading(run, path));
    drawList();
  };
  const again = () => {
    timer = setTimeout(() => void (document.hidden ? Promise.resolve() : look().catch(() => undefined)).finally(() => { if (!left && run.state === "running") again(); }), AGAIN) as unknown as number;
  };
  void during(place, "Reading the run …", async () => {
    await look();
    if (left) return [];
    if (run.state === "running") again();
    const first = chosen || run.functions.find((row: FunctionRow) => row.state !== "failed")?.id;
    if (first) choose(first);
    else replace(one, h("p", {}, "No function is answered yet."));
    return [
      head,
      h("form", { class: "filters", onsubmit: (event: Event) => event.preventDefault() },
        field("answers", select([ANY, "right", "wrong", "not graded", "error"], answers, (value) => { answers = value; drawList(); })),
        field("name", h("input", { type: "search", value: words, oninput: (event: Event) => { words = (event.target as HTMLInputElement).value; drawList(); } }))),
      h("div", { class: "functions" }, list, one),
    ];
  });
  return () => { left = true; clearTimeout(timer); };
}

function heading(run: any, path: string): Child {
  const right = run.functions.filter((row: FunctionRow) => row.right).length;
  const states: Record<string, string> = { running: "▶ running", stopped: "❙❙ stopped", finished: "✓ finished" };
  const fact = (name: string, value: Child) => [h("dt", {}, name), h("dd", {}, value)];
  return [
    h("p", { class: "path" }, path),
    h("h1", {}, `${run.category.charAt(0).toUpperCase()}${run.category.slice(1)} functions by ${run.interpreter}`),
    h("p", { class: `state ${run.state}`, role: "status" }, states[run.state], h("span", { class: "quiet" }, ` ${run.done}${run.total ? ` of ${run.total}` : ""} answered`)),
    h("dl", { class: "facts" },
      run.backbone ? fact("model", run.backbone) : null,
      run.graded ? fact("fully right", `${right} of ${run.functions.length}`) : null,
      run.backbone ? fact("cost", dollars(run.cost)) : null,
      run.started && run.state === "running" ? fact("under way", duration(Date.now() / 1000 - run.started)) : null,
      MAIN.filter((name) => run.metrics[name]).map((name) => fact(name.replaceAll("_", " "), figure(run.metrics[name] as Figure)))),
    run.graded ? h("p", {}, link("All figures", "result", { path })) : h("p", { class: "quiet" }, "What the functions are is shown when the whole run is graded."),
  ];
}

function details(answer: any, path: string): Child {
  const key = answer.key;
  const text = (name: string, one: Text) => (one.text ? [h("dt", {}, name), h("dd", {}, one.length > one.text.length ? `${one.text}… (${whole(one.length)} characters)` : one.text)] : null);
  return h("article", { "aria-label": answer.id },
    h("h2", {}, answer.id, key ? h("span", { class: "quiet" }, ` ${key.family}`) : null),
    key?.drawing ? plot(key.drawing) : null,
    h("dl", { class: "answer" },
      key ? [h("dt", {}, "truth"), h("dd", {}, key.truth)] : null,
      text("answer", answer.description), text("domain", answer.domain),
      key ? [h("dt", {}, "verdict"), h("dd", {}, key.right ? "✓ right" : key.score ? `✗ ${number(key.score, 2)}` : "✗ wrong", key.scores ? `, ${key.scores}` : "")] : null,
      key?.fault ? [h("dt", {}, "fault"), h("dd", {}, key.fault)] : null),
    answer.code.text ? [h("h3", {}, "Code"), h("pre", { class: "said", tabindex: 0, "aria-label": "code" }, answer.code.text)] : null,
    key?.examples.length ? examples(key.examples) : null,
    key?.tests.length ? tests(key.tests) : null,
    answer.problems.map((line: string) => h("p", { class: "quiet" }, line)),
    answer.calls.length ? dialogue(answer, path) : null,
    queries(answer));
}

function plot(drawn: any): Child {
  const [x, y, width, height] = drawn.frame;
  const sample = (name: string, d: string) => h("svg", { viewBox: "0 0 34 16", class: "key", "aria-hidden": "true" }, h("path", { class: name, d }));
  return h("figure", { class: "plot" },
    h("svg", { viewBox: `0 0 ${drawn.width} ${drawn.height}`, role: "img", "aria-label": drawn.summary },
      h("rect", { class: "ground", x, y, width, height }),
      h("path", { class: "true", d: drawn.truth }), h("path", { class: "answered", d: drawn.answer }), h("path", { class: "asked", d: drawn.samples }),
      drawn.labels.map((label: any) => h("text", { x: label.x, y: label.y, "text-anchor": "end" }, label.text))),
    h("figcaption", { class: "quiet" }, sample("true", "M1 8H33"), " the function ", sample("answered", "M1 8H33"), " the answer's code ", sample("asked", "M6 8h0M17 5h0M28 10h0"), " points asked"));
}

function examples(rows: any[]): Child {
  return [h("h3", {}, "Examples"), scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["input", "function", "answer"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.right ? null : "changed" }, h("td", {}, row.input), h("td", {}, row.truth), h("td", {}, row.answer, row.right ? null : h("span", { class: "quiet" }, "differs")))))))];
}

function tests(rows: any[]): Child {
  return [h("h3", {}, "Unit tests"), scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["offered, the function's own in bold", "chosen"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.right ? null : "changed" }, h("td", {}, row.offered.map((one: string, at: number) => h(at === row.own ? "strong" : "span", { class: "offered" }, one))), h("td", {}, row.chosen))))))];
}

function dialogue(answer: any, path: string): Child {
  const source = (call: Call, part: string) => ({ path, case: answer.id as string, number: call.number, part });
  return [
    h("h3", {}, "Dialogue"),
    answer.calls.map((call: Call) => h("section", { class: "agent-stage", "aria-label": call.label },
      h("h4", {}, call.label),
      h("p", { class: "quiet" }, `${whole(call.input_tokens)} tokens in, ${whole(call.output_tokens)} out, ${dollars(call.cost)}`),
      call.prompt ? h("details", {}, h("summary", {}, "Prompt"), said(call.prompt, source(call, "prompt"), "prompt")) : null,
      call.failure ? h("p", { class: "problem" }, `The call failed: ${call.failure}`) : null,
      call.text ? said(call.text, source(call, "text"), "the model") : Object.entries(call.answer).map(([name, text]) => said(text, source(call, `answer.${name}`), name)),
      call.reply ? h("div", { class: "use" }, said(call.reply, source(call, "reply"), "what it was told")) : null)),
    answer.n_calls > answer.calls.length ? h("p", { class: "quiet" }, `The first ${answer.calls.length} of ${answer.n_calls} calls are shown.`) : null,
  ];
}

function queries(answer: any): Child {
  if (!answer.n_asked) return null;
  const cut = answer.n_asked > answer.asked.length ? `, the first ${answer.asked.length}` : "";
  return h("details", {}, h("summary", {}, `${answer.n_asked} queries${cut}`), scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["input", "output"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, answer.asked.map(([given, output]: [string, string]) => h("tr", {}, h("td", {}, h("code", {}, given)), h("td", {}, h("code", {}, output))))))));
}

async function runsOfFunctions(): Promise<Child> {
  const rows = (await get("changes")).rows.filter((row: any) => row.kind === "benchmark" && row.title.startsWith("bench functions"));
  rows.sort((a: any, b: any) => b.modified - a.modified);
  return [
    h("h1", {}, "Functions"),
    h("p", { class: "lede" }, "Runs of the functions benchmark: what was asked of each black box, what was answered, and the two drawn over each other."),
    rows.length ? h("ul", { class: "plain" }, rows.map((row: any) => h("li", {}, link(row.path, "functions", { path: row.path }), h("span", { class: "quiet" }, ` ${row.state}, ${row.figures || row.title}`)))) : h("p", {}, "None here yet. `vesalius bench functions --out DIRECTORY` makes one."),
  ];
}
