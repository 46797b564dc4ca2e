import assert from "node:assert/strict";
import { test } from "node:test";
import { format, parse } from "../src/address";
import { fileName } from "../src/export";
import { duration, figure, number, scale, signed } from "../src/numbers";
import { shown } from "../src/parts/attention";
import "./circuit.test";
import { nameOf, shade, step } from "../src/parts/headmap";
import { action, captions } from "../src/views/annotate";
import { anchor, compared, leadsToSections } from "../src/parts/sections";
import { spoken } from "../src/views/result";
import { matches } from "../src/views/runs";
import { tokensOf } from "../src/views/specimen";
import "./live.test";

test("addresses survive a round trip", () => {
  const address = { view: "what-if", query: { specimen: "a/b c", components: "L0H1,L2_MLP" } };
  const text = format(address);
  assert.equal(text, "/what-if?specimen=a%2Fb+c&components=L0H1%2CL2_MLP");
  const [path, search] = text.split("?");
  assert.deepEqual(parse(path!, `?${search}`), address);
  assert.deepEqual(parse("/", ""), { view: "runs", query: {} });
  assert.equal(format({ view: "runs", query: { kind: "" } }), "/runs");
});

test("figures", () => {
  assert.equal(figure({ value: 0.5, low: 0.25, high: 0.75 }), "0.500 [0.250, 0.750]");
  assert.equal(figure({ value: 0.5, low: null, high: null }), "0.500");
  assert.equal(figure({ value: null }), "no value");
  assert.equal(number(3), "3");
  assert.equal(signed(-0.5), "-0.500");
  assert.equal(signed(0.5), "+0.500");
  assert.equal(duration(12.34), "12.3 s");
  assert.equal(duration(600), "10 min");
});

test("a strip holds 0, 1 and every point", () => {
  const at = scale([0.2, 0.9]);
  assert.equal(at(0), 0);
  assert.equal(at(1), 100);
  const wide = scale([-1, 3]);
  assert.equal(wide(-1), 0);
  assert.equal(wide(3), 100);
});

test("names and shades of the map", () => {
  assert.equal(nameOf(3, 2, 4), "L3H2");
  assert.equal(nameOf(3, 4, 4), "L3_MLP");
  assert.equal(shade(0, 1), 0);
  assert.equal(shade(-1, 1), 9);
  assert.equal(shade(0.25, 1), 5);
  assert.equal(shade(1 / 9, 1), 3);
  assert.equal(shade(1, 0), 0);
});

test("rows are sorted by figures or by words, those without a value last", () => {
  const sorted = (values: string[], figures: boolean, direction: number) => [...values].sort((a, b) => compared(a, b, figures, direction));
  assert.deepEqual(sorted(["2", "", "10", "-1"], true, 1), ["-1", "2", "10", ""]);
  assert.deepEqual(sorted(["2", "", "10", "-1"], true, -1), ["10", "2", "-1", ""]);
  assert.deepEqual(sorted(["L10H1", "L2H1", "L0_MLP"], false, 1), ["L0_MLP", "L2H1", "L10H1"]);
});

test("a component's place on the page is that of the static page", () => {
  assert.equal(anchor("L0_MLP"), "component-L0_MLP");
  assert.equal(anchor("L1_MLP[3]"), "component-L1_MLP-3-");
  assert.equal(leadsToSections(["L0H0", "L0H1"], ["L0H1", "L0H0", "L0_MLP"]), true);
  assert.equal(leadsToSections(["L0H0", "L0H1"], ["L0H0"]), false);
  assert.equal(leadsToSections([], ["L0H0"]), false);
});

test("tokens of a listed vocabulary", () => {
  assert.deepEqual(tokensOf(" a x, b ", ["a", "x", "b"]), ["a", "x", "b"]);
  assert.deepEqual(tokensOf("1 2", [1, 2]), [1, 2]);
  assert.deepEqual(tokensOf("1 2", ["1", "2"]), ["1", "2"]);
});

test("filters of the list", () => {
  const row = { path: "a/b", kind: "sweep", title: "smollm2, ioi", state: "finished", figures: "", modified: 0, problem: "" };
  assert.ok(matches(row, "any", "any", ""));
  assert.ok(matches(row, "sweep", "finished", "IOI smollm2"));
  assert.ok(!matches(row, "explanation", "any", ""));
  assert.ok(!matches(row, "any", "any", "induction"));
});

test("tokens are shown with their spaces", () => {
  assert.equal(shown(" the\n"), "·the⏎");
  assert.equal(shown(""), "∅");
});

test("arrow keys move by one cell", () => {
  assert.deepEqual(step(2, 1, "ArrowRight"), [3, 1]);
  assert.deepEqual(step(2, 1, "ArrowUp"), [2, 0]);
  assert.deepEqual(step(2, 1, "Enter"), [2, 1]);
});

test("names of saved views hold no path", () => {
  assert.equal(fileName({ view: "what-if", query: { specimen: "frac_prevs", components: "L0H1,L2_MLP" } }), "vesalius-what-if-frac_prevs-L0H1-L2_MLP.html");
  assert.equal(fileName({ view: "result", query: { path: "../a/<b>" } }), "vesalius-result-a-b.html");
});

test("prompts as they are typed", () => {
  assert.equal(spoken('["a", "x"]'), "a x");
  assert.equal(spoken("[sic] he said"), "[sic] he said");
});

test("keys of the rating view", () => {
  const levels = [{ score: 0, name: "wrong", text: "", key: "1" }, { score: 1, name: "correct", text: "", key: "3" }];
  assert.deepEqual(action("3", levels), { score: 1 });
  assert.equal(action("2", levels), null);
  assert.equal(action("Enter", levels), "next");
  assert.equal(action("ArrowLeft", levels), "previous");
  assert.equal(action("U", levels), "undo");
  assert.equal(action("x", levels), null);
  assert.deepEqual(captions("plan_soundness"), { rated: "Validation plan", given: "Hypothesis" });
  assert.deepEqual(captions("grounding"), { rated: "Hypothesis", given: "Observation" });
  assert.equal(captions("task_accuracy").given, "");
});
