/** A run of a language model, stage by stage while it goes on; and the form that starts one. */

import { get, post } from "../ask";
import { field, h, replace, scrolling, select, type Child } from "../dom";
import { dollars, duration, whole } from "../numbers";
import { during, go, link, verdict } from "../page";
import * as texts from "../parts/said";
import type { Text } from "../parts/said";
import type { Query } from "../address";

interface ToolUse {
  tool: string;
  given: Text;
  is_code: boolean;
  claim: string | null;
  result: Text | null;
  verdict: string | null;
}
export interface Call {
  number: number;
  label: string;
  stage: string;
  component: string | null;
  attempt: number | null;
  prompt: Text | null;
  tools: ToolUse[];
  answer: Record<string, Text>;
  text: Text | null;
  reply: Text | null;
  failure: string | null;
  input_tokens: number;
  output_tokens: number;
  cost: number | null;
  seconds: number | null;
  /** Forward passes of a tool that another agent called; null for calls of a language model. */
  forwards?: number | null;
}
export interface Stage {
  label: string;
  calls: Call[];
}

const AGAIN_RUNNING = 1000;
const AGAIN_AT_REST = 4000;
const STATES: Record<string, string> = { running: "▶ running", stopping: "◼ stopping", stopped: "❙❙ stopped", finished: "✓ finished" };

/** Calls that follow each other under one label are one stage. */
export function stagesOf(calls: Call[]): Stage[] {
  const stages: Stage[] = [];
  for (const call of calls) {
    const last = stages[stages.length - 1];
    if (last && last.label === call.label) last.calls.push(call);
    else stages.push({ label: call.label, calls: [call] });
  }
  return stages;
}

/** A stage in words: its name with a capital, and the component. */
export function heading(stage: Stage): string {
  const text = stage.label || "call";
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function tokens(calls: Call[]): string {
  const sum = (of: (call: Call) => number) => calls.reduce((total, call) => total + of(call), 0);
  return `${whole(sum((call) => call.input_tokens))} tokens in, ${whole(sum((call) => call.output_tokens))} out`;
}

/** The cost of several calls; null where one of them is not known. */
export function costOf(calls: Call[]): number | null {
  return calls.reduce<number | null>((total, call) => (total === null || call.cost === null ? null : total + call.cost), 0);
}

/** What the calls of a stage took: tokens and dollars of a language model, or passes and seconds of tools. */
export function took(calls: Call[]): string {
  const number = `${calls.length} ${calls.length === 1 ? "call" : "calls"}`;
  if (calls.some((call) => call.forwards === undefined || call.forwards === null)) return `${number}, ${tokens(calls)}, ${dollars(costOf(calls))}`;
  const sum = (of: (call: Call) => number) => calls.reduce((total, call) => total + of(call), 0);
  return `${number}, ${whole(Math.round(sum((call) => call.forwards ?? 0)))} forward passes, ${duration(sum((call) => call.seconds ?? 0))}`;
}

export function agent(place: Element, query: Query): () => void {
  const path = query["path"] ?? "";
  if (!path) {
    void during(place, "Looking for runs …", starting);
    return () => undefined;
  }
  return watch(place, path, query["case"] ?? "");
}

function watch(place: Element, path: string, wanted: string): () => void {
  const head = h("div", {});
  const stood = h("div", {});
  const list = h("div", { class: "stages" });
  const sums = h("div", {});
  const drawn = new Map<number, { mark: string; element: HTMLElement }>();
  const calls: Call[] = [];
  let headMark = "";
  let timer = 0;
  let left = false;
  let first = true;

  const said = (text: Text, part: string, call: Call, label: string): Child => texts.said(text, { path, case: wanted, number: call.number, part }, label);
  const tool = (use: ToolUse, at: number, call: Call): Child =>
    h("div", { class: "use" },
      h("h4", {}, use.claim ? `Claim: ${use.claim.replaceAll("_", " ")}` : use.is_code ? "Code" : use.tool, " ", use.verdict ? verdict(use.verdict) : null),
      use.is_code ? said(use.given, `tool.${at}.given`, call, "code") : h("details", {}, h("summary", {}, "What it was given"), said(use.given, `tool.${at}.given`, call, "arguments")),
      use.result === null ? (call.failure ? null : h("p", { class: "quiet" }, "Its result is recorded with the next call.")) : use.result.length > 1200 ? h("details", {}, h("summary", {}, `Result, ${whole(use.result.length)} characters`), said(use.result, `tool.${at}.result`, call, "result")) : said(use.result, `tool.${at}.result`, call, "result"));
  const one = (call: Call): HTMLElement =>
    h("div", { class: "call", "data-call": call.number },
      call.failure ? h("p", { class: "problem" }, `The call failed: ${call.failure}`) : null,
      call.tools.map((use, at) => tool(use, at, call)),
      Object.entries(call.answer).length ? h("dl", { class: "answer" }, Object.entries(call.answer).map(([name, text]) => { const words = h("dd", {}, text.text); return [h("dt", {}, name.replaceAll("_", " ")), words, text.length > text.text.length ? h("dd", {}, texts.more(text, { path, case: wanted, number: call.number, part: `answer.${name}` }, words)) : null]; })) : null,
      call.text ? said(call.text, "text", call, "answer") : null,
      call.reply ? h("details", {}, h("summary", {}, "What the model was told then"), said(call.reply, "reply", call, "reply")) : null);

  const drawStages = () => {
    const stages = stagesOf(calls);
    stages.forEach((stage, at) => {
      const mark = JSON.stringify(stage);
      const before = drawn.get(at);
      if (before?.mark === mark) return;
      const prompt = stage.calls[0]!.prompt;
      const element = h("section", { class: "agent-stage", "aria-label": heading(stage) },
        h("h3", {}, heading(stage)),
        h("p", { class: "quiet" }, took(stage.calls)),
        prompt ? h("details", {}, h("summary", {}, "Prompt"), said(prompt, "prompt", stage.calls[0]!, "prompt")) : null,
        stage.calls.map(one));
      for (const [number, details] of [...(before?.element.querySelectorAll("details") ?? [])].entries()) {
        const same = element.querySelectorAll("details")[number];
        if (details.open && same) same.open = true;
      }
      if (before) before.element.replaceWith(element);
      else list.append(element);
      drawn.set(at, { mark, element });
    });
    for (const at of [...drawn.keys()].filter((key) => key >= stages.length)) {
      drawn.get(at)!.element.remove();
      drawn.delete(at);
    }
  };

  const act = async (what: "stop" | "resume", button: HTMLButtonElement, digest?: string) => {
    button.disabled = true;
    try {
      await post(`jobs/${what}`, { path, ...(digest ? { digest } : {}) });
      headMark = "";
    } catch (error) {
      head.append(h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
      return;
    }
    void look();
  };
  /** The fields of a run lie in its directory, so what they come to is shown before anything is started. */
  const confirm = (resume: any, button: HTMLButtonElement) => {
    const start: HTMLButtonElement = h("button", { type: "button", "data-act": "confirm", onclick: () => void act("resume", start, resume.digest) }, "Start it");
    const panel = h("section", { class: "note confirm", "aria-label": "what will be started" },
      h("p", {}, "This will be started on this machine:"), h("pre", {}, resume.command),
      h("dl", { class: "facts" }, fact("model", resume.backbone ?? "none is asked"), fact("cost limit", resume.backbone === null ? "no cost" : resume.max_cost === null ? "none was set" : `$${resume.max_cost}`)),
      h("div", { class: "filters" }, start, h("button", { type: "button", onclick: () => { panel.remove(); button.disabled = false; button.focus(); } }, "Not now")));
    button.disabled = true;
    button.closest(".filters")!.after(panel);
    start.focus();
  };
  const drawHead = (answer: any) => {
    const run = answer.run;
    const used = run.usage.total;
    const mark = JSON.stringify({ ...answer, run: { ...run, calls: [] } });
    if (mark === headMark) return;
    const focused = head.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset["act"] : undefined;
    headMark = mark;
    const working = answer.state === "running" || answer.state === "stopping";
    const count = run.total ? `, ${run.done} of ${run.total}` : "";
    replace(head,
      h("p", { class: "path" }, path),
      h("h1", {}, title(run, answer.asked)),
      h("p", { class: `state ${answer.state}`, role: "status" }, STATES[answer.state] ?? answer.state, working ? h("span", { class: "quiet" }, answer.state === "stopping" ? " It ends after what it is doing now." : ` ${run.step || "starting"}${count}`) : null),
      answer.ended && answer.state === "stopped" ? h("p", { class: "quiet" }, answer.ended) : null,
      h("div", { class: "filters" },
        answer.can_stop ? h("button", { type: "button", "data-act": "stop", onclick: (event: Event) => void act("stop", event.currentTarget as HTMLButtonElement) }, "Stop") : null,
        answer.can_resume && answer.resume ? h("button", { type: "button", "data-act": "resume", onclick: (event: Event) => confirm(answer.resume, event.currentTarget as HTMLButtonElement) }, "Resume …") : null,
        run.specimen.startsWith("bench functions") ? link("The functions", "functions", { path }) : answer.state === "finished" && run.forwards === null ? link("The result", "result", { path }) : null,
        run.cases.length ? field(run.forwards === null ? "case" : "connection", select(run.cases.map((each: any) => each.case), run.case, (value) => go("agent", { path, case: value }))) : null),
      answer.state === "running" && !answer.can_stop ? h("p", { class: "quiet" }, "It was started elsewhere and can only be watched here: press Ctrl-C there to stop it.") : null,
      answer.state === "stopped" && !answer.can_resume ? h("p", { class: "quiet" }, "It was not started from this page: give its command again in the terminal, and it continues.") : null,
      h("dl", { class: "facts" },
        run.forwards === null
          ? [fact("scientist", run.scientist || answer.asked?.scientist), fact("model", run.usage.backbone ?? answer.asked?.backbone), fact("calls", used.calls),
            fact("tokens in", whole(used.input_tokens)), fact("tokens out", whole(used.output_tokens)), fact("cost", dollars(used.cost)), fact("answering", duration(used.seconds))]
          : [fact("calls", run.n_calls), fact("forward passes", whole(Math.round(run.forwards))), fact("computing", duration(run.seconds))],
        run.started && working ? fact("under way", duration(Date.now() / 1000 - run.started)) : null),
      run.problems.length ? h("details", {}, h("summary", {}, `${run.problems.length} ${run.problems.length === 1 ? "problem" : "problems"}`), h("ul", {}, run.problems.map((line: string) => h("li", {}, line)))) : null,
      answer.command && !working && answer.state !== "finished" ? [h("p", { class: "quiet" }, "The same on the command line:"), h("pre", {}, answer.command)] : null);
    if (focused) (head.querySelector(`[data-act="${focused}"]`) as HTMLElement | null ?? head.querySelector("button"))?.focus();
    replace(stood, run.hypotheses.length ? hypotheses(run.hypotheses) : null);
    replace(sums, used.calls ? usage(run.usage) : null);
  };

  const look = async () => {
    clearTimeout(timer);
    let wait = AGAIN_AT_REST;
    try {
      if (!document.hidden || first) {
        const answer = await get("agent", { path, first: String(Math.max(0, calls.length - 4)), ...(wanted ? { case: wanted } : {}) });
        if (left) return;
        if (answer.run.n_calls < calls.length) calls.length = 0; // the records were replaced: read them all again
        else for (const call of answer.run.calls) calls[call.number] = call;
        if (first) replace(place, h("article", { class: "agent" }, head, stood, h("h2", {}, "Stages"), list, sums));
        first = false;
        drawHead(answer);
        drawStages();
        const behind = answer.run.n_calls > calls.length;
        wait = behind ? 0 : answer.state === "running" || answer.state === "stopping" ? AGAIN_RUNNING : AGAIN_AT_REST;
        if (!calls.length) replace(list, h("p", { class: "quiet" }, answer.state === "running" ? "No call is on record yet." : "No calls of a language model are on record."));
        else if (list.firstElementChild?.tagName === "P") list.firstElementChild.remove();
      }
    } catch (error) {
      if (left) return;
      const problem = h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error));
      if (first) return replace(place, problem);
      headMark = "";
      replace(head, problem);
    }
    timer = setTimeout(() => void look(), wait) as unknown as number;
  };
  replace(place, h("p", { class: "waiting", role: "status" }, "Reading the run …"));
  void look();
  return () => { left = true; clearTimeout(timer); };
}

/** What a run is called: by its result, by what was asked for, or by the scope of its calls. */
export function title(run: any, asked: any): string {
  if (asked && run.state !== "finished") return `${asked.specimen}${asked.behaviour ? `, ${asked.behaviour}` : ""}`;
  return run.specimen || asked?.specimen || "A run";
}

function fact(name: string, value: Child): Child {
  return value === undefined || value === null || value === "" ? null : [h("dt", {}, name), h("dd", {}, value)];
}

function hypotheses(rows: any[]): Child {
  return [
    h("h2", {}, "Hypotheses"),
    scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["component", "attempt", "verdict", "decided by", "hypothesis"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.component), h("td", { class: "number" }, row.attempt), h("td", {}, row.verdict ? verdict(row.verdict) : h("span", { class: "quiet" }, "under test")), h("td", {}, row.decided_by ?? ""), h("td", { class: "words" }, row.hypothesis.text)))))),
  ];
}

function usage(used: any): Child {
  const row = (name: string, one: any) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, one.calls), h("td", { class: "number" }, whole(one.input_tokens)), h("td", { class: "number" }, whole(one.output_tokens)), h("td", { class: "number" }, dollars(one.cost)), h("td", { class: "number" }, duration(one.seconds)));
  const table = (title: string, rows: HTMLElement[]) => scrolling(h("table", { class: "list" }, h("caption", {}, title), h("thead", {}, h("tr", {}, [title.replace("By ", ""), "calls", "tokens in", "tokens out", "cost", "answering"].map((one) => h("th", { scope: "col" }, one)))), h("tbody", {}, rows)));
  return [
    h("h2", {}, "Tokens and cost"),
    h("div", { class: "sums" },
      table("By stage", used.stages.map((one: any) => row(one.stage, one))),
      table("By component", used.components.map((one: any) => row(one.component ?? "the whole circuit", one)))),
  ];
}

/** What can be watched, and the form that starts a run. */
async function starting(): Promise<Child> {
  const [jobs, listed, known] = await Promise.all([get("jobs"), get("changes"), get("specimens")]);
  const rows = listed.rows.filter((row: any) => row.state === "running" || (row.has_calls && row.state === "unfinished"));
  rows.sort((a: any, b: any) => b.modified - a.modified);
  return [
    h("h1", {}, "Agent"),
    h("p", { class: "lede" }, "A run of a scientist on one specimen. It is a process of its own: closing this page does not end it, stopping loses nothing, and the same run continues when it is resumed."),
    rows.length ? [h("h2", {}, "Under way or stopped"), h("ul", { class: "plain" }, rows.slice(0, 50).map((row: any) => h("li", {}, link(row.path, "agent", { path: row.path }), h("span", { class: "quiet" }, ` ${row.state === "unfinished" ? "stopped" : row.state}${row.figures ? `, ${row.figures}` : ""}`))))] : null,
    h("h2", {}, "Start a run"),
    jobs.watch_only ? h("p", {}, "Other machines can reach this server, so runs are only watched here. Start it without --host to start them.") : form(jobs.backbones, known),
  ];
}

function form(backbones: string[], known: any): HTMLElement {
  const text = (name: string, attributes: Record<string, any> = {}) => h("input", { type: "text", name, autocomplete: "off", ...attributes }) as HTMLInputElement;
  const number = (name: string, attributes: Record<string, any> = {}) => h("input", { type: "number", name, ...attributes }) as HTMLInputElement;
  const names: string[] = known.specimens.map((one: any) => one.name);
  const behaviours: string[] = known.behaviours.map((one: any) => one.name ?? one);
  const problem = h("div", { role: "alert" });
  const own = backbones.filter((one) => !one.endsWith(":"));
  const components = text("components", { placeholder: "the specimen's own" });
  const specimen = text("specimen", { list: "specimen-names", required: true });
  const behaviour = text("behaviour", { list: "behaviour-names" });
  const scientist = select(["hyve", "hybrid", "builtin"], "hyve", (value) => { for (const one of [backbone, protocol, cost]) one.disabled = value === "builtin"; });
  const backbone = text("backbone", { list: "backbone-names", value: own[0] ?? "", placeholder: "openai:gpt-5.4" });
  const protocol = select(["typed", "paper"], "typed", () => undefined);
  const seed = number("seed", { value: 0, min: 0 });
  const n = number("n", { min: 4 });
  const cost = number("max_cost", { min: 0, step: "any" });
  const name = text("name", { placeholder: "chosen from the rest" });
  const button: HTMLButtonElement = h("button", { type: "submit" }, "Start");
  const options = (id: string, values: string[]) => h("datalist", { id }, values.map((value) => h("option", { value })));
  const start = async () => {
    button.disabled = true;
    const builtin = scientist.value === "builtin";
    const given: Record<string, unknown> = {
      specimen: specimen.value.trim(), behaviour: behaviour.value.trim() || null, scientist: scientist.value, components: components.value.split(",").map((one) => one.trim()).filter(Boolean), seed: Number(seed.value || 0), n: n.value === "" ? null : Number(n.value), name: name.value.trim() || null,
      backbone: builtin ? null : backbone.value.trim() || null, protocol: scientist.value === "hyve" ? protocol.value : null, max_cost: builtin || cost.value === "" ? null : Number(cost.value),
    };
    try {
      const answer = await post("jobs/start", given);
      go("agent", { path: answer.path });
    } catch (error) {
      button.disabled = false;
      replace(problem, h("p", { class: "problem" }, error instanceof Error ? error.message : String(error)));
    }
  };
  return h("form", { class: "start", onsubmit: (event: Event) => { event.preventDefault(); void start(); } },
    field("specimen", specimen), field("behaviour (natural models)", behaviour), field("components, comma-separated", components), field("scientist", scientist), field("backbone, as PROVIDER:MODEL", backbone), field("protocol", protocol), field("seed", seed), field("prompts (natural models)", n), field("spend at most, in dollars", cost), field("directory", name),
    options("specimen-names", names), options("behaviour-names", behaviours), options("backbone-names", own),
    h("p", { class: "quiet" }, "Keys are read from the environment of the server, never from this page."),
    h("div", {}, button), problem);
}
