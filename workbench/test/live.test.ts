/** Runs that are under way, and the list of results. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { dollars, whole } from "../src/numbers";
import { costOf, heading, stagesOf, tokens, took, type Call } from "../src/views/agent";
import { mark, matchesFunction, type FunctionRow } from "../src/views/functions";
import { merged, progress, view, type Row } from "../src/views/runs";

const call = (number: number, label: string, cost: number | null): Call => ({ number, label, stage: "observe", component: null, attempt: null, prompt: null, tools: [], answer: {}, text: null, reply: null, failure: null, input_tokens: 1000, output_tokens: 7, cost, seconds: null });

test("calls under one label are one stage, and a stage comes again", () => {
  const stages = stagesOf([call(0, "L0H1 observation", 0.5), call(1, "L0H1 observation", 0.25), call(2, "L0H1 hypothesis 1", null), call(3, "L0H1 observation", 0)]);
  assert.deepEqual(stages.map((stage) => stage.calls.map((one) => one.number)), [[0, 1], [2], [3]]);
  assert.equal(heading(stages[1]!), "L0H1 hypothesis 1");
  assert.equal(heading({ label: "classification", calls: [] }), "Classification");
  assert.equal(tokens(stages[0]!.calls), "2,000 tokens in, 14 out");
  assert.equal(costOf(stages[0]!.calls), 0.75);
  assert.equal(costOf(stages[1]!.calls), null);
});

test("tools of another agent are counted in passes", () => {
  const made = [0, 1].map((number) => ({ ...call(number, "sweep", null), forwards: 600.5, seconds: 2 }));
  assert.equal(took(made), "2 calls, 1,201 forward passes, 4.0 s");
  assert.equal(took([call(0, "sweep", 0.5)]), "1 call, 1,000 tokens in, 7 out, $0.50");
  assert.equal(view(row("a", 1, { kind: "mcp" })), "agent");
});

test("counts and costs", () => {
  assert.equal(whole(7), "7");
  assert.equal(whole(1234567), "1,234,567");
  assert.equal(dollars(0), "no cost");
  assert.equal(dollars(0.01234), "$0.0123");
  assert.equal(dollars(null), "cost not known");
});

const row = (path: string, modified: number, more: Partial<Row> = {}): Row => ({ path, kind: "explanation", title: "", state: "finished", figures: "", modified, problem: "", ...more });

test("changes are merged, the latest first", () => {
  const before = merged(new Map(), [row("a", 1), row("b", 2), row("c", 3)], []);
  assert.deepEqual([...before.keys()], ["c", "b", "a"]);
  const after = merged(before, [row("a", 9, { state: "running" }), row("d", 0)], ["b"]);
  assert.deepEqual([...after.keys()], ["a", "c", "d"]);
  assert.equal(after.get("a")!.state, "running");
});

test("a row leads to its view and tells how far it is", () => {
  assert.equal(view(row("a", 1)), "result");
  assert.equal(view(row("a", 1, { state: "running" })), "agent");
  assert.equal(view(row("a", 1, { state: "unfinished", has_calls: true })), "agent");
  assert.equal(view(row("a", 1, { kind: "benchmark", title: "bench functions, aia" })), "functions");
  assert.equal(progress(row("a", 1, { state: "running", done: 3, total: 12 })), "▶ running, 3 of 12");
});

const asked = (more: Partial<FunctionRow>): FunctionRow => ({ id: "f00001", state: "interpreted", score: null, right: null, queries: 3, seconds: 1, problem: "", ...more });

test("a function is right, wrong, not graded or an error, in words", () => {
  assert.equal(mark(asked({ right: true, score: 1 })), "✓ right");
  assert.equal(mark(asked({ right: false, score: 0 })), "✗ wrong");
  assert.equal(mark(asked({ right: false, score: 0.25 })), "✗ 0.25");
  assert.equal(mark(asked({})), "not graded yet");
  assert.equal(mark(asked({ state: "failed" })), "error");
  assert.ok(matchesFunction(asked({ right: true }), "right", "F0000"));
  assert.ok(!matchesFunction(asked({ right: true }), "wrong", ""));
  assert.ok(!matchesFunction(asked({}), "any", "f2"));
});
