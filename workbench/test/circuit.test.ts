import assert from "node:assert/strict";
import { test } from "node:test";
import { countFrom, edgeOf, gapsOf, keptBy, positionOf, rankOf, SLIDER, Steps, thresholdAt, type Graph } from "../src/parts/circuit";
import { layoutOf, neighbour } from "../src/parts/graph";
import { comparable } from "../src/views/circuit";
import { placeOf, readers } from "../src/views/component";

const GRAPH: Graph = {
  kind: "discovery", by: "edges",
  nodes: [{ id: "L0H0", score: 0.5 }, { id: "L1H1", score: 0.4 }, { id: "L0_MLP", score: 0.1 }],
  edges: [["input->a0.h0<v>", 0.9], ["a0.h0->a1.h1<k>", -0.5], ["a1.h1->logits", 0.4], ["m0->logits", 0.1]].map(([id, score]) => edgeOf(id as string, score as number)!),
};
const edits = (least: number, pin: string[] = [], prune: string[] = []) => ({ least, pin: new Set(pin), prune: new Set(prune) });
const ids = (one: { edges: { id: string }[] }) => one.edges.map((edge) => edge.id);

test("edges are read with the names of the page", () => {
  assert.deepEqual(edgeOf("a0.h0->a1.h1<k>", -0.5), { id: "a0.h0->a1.h1<k>", from: "L0H0", to: "L1H1", port: "k", score: -0.5 });
  assert.deepEqual(edgeOf("m3->logits", 1)?.from, "L3_MLP");
  assert.equal(edgeOf("nonsense", 1), null);
  assert.deepEqual(["input", "L0H3", "L0_MLP", "L1H0", "logits", "<b>"].map(rankOf), [0, 1, 2, 3, Infinity, null]);
});

test("what stays is strong or pinned, and not pruned", () => {
  assert.deepEqual(ids(keptBy(GRAPH, edits(0.45))), ["input->a0.h0<v>", "a0.h0->a1.h1<k>"]);
  assert.deepEqual([...keptBy(GRAPH, edits(0.45)).nodes], ["L0H0", "L1H1"]);
  assert.deepEqual(ids(keptBy(GRAPH, edits(0.45, ["m0->logits"]))), ["input->a0.h0<v>", "a0.h0->a1.h1<k>", "m0->logits"]);
  assert.deepEqual(ids(keptBy(GRAPH, edits(0, ["a1.h1->logits"], ["L1H1"]))), ["input->a0.h0<v>", "m0->logits"]);
  assert.deepEqual(ids(keptBy(GRAPH, edits(0, [], ["a0.h0->a1.h1<k>"]))), ["input->a0.h0<v>", "a1.h1->logits", "m0->logits"]);
  const parts: Graph = { ...GRAPH, by: "components", edges: [] };
  assert.deepEqual([...keptBy(parts, edits(0.4, ["L0_MLP"], ["L0H0"])).nodes], ["L1H1", "L0_MLP"]);
});

test("gaps are found", () => {
  assert.deepEqual(gapsOf(keptBy(GRAPH, edits(0))), { unfed: ["L0_MLP"], unread: [], apart: ["L0_MLP"] });
  assert.deepEqual(gapsOf(keptBy(GRAPH, edits(0.45))), { unfed: [], unread: ["L1H1"], apart: ["L0H0", "L1H1"] });
});

test("the slider counts edges and comes back to its place", () => {
  const scores = Array.from({ length: 10000 }, (_, place) => 1 / (place + 1));
  assert.equal(countFrom(scores, thresholdAt(SLIDER, scores)), 10000);
  assert.equal(countFrom(scores, thresholdAt(0, scores)), 0);
  for (const position of [100, 400, 900]) assert.ok(Math.abs(positionOf(thresholdAt(position, scores), scores) - position) <= 40);
  assert.equal(thresholdAt(500, []), 0);
});

test("steps can be undone and done again", () => {
  const steps = new Steps(edits(0.1));
  steps.pin("L0H0");
  steps.prune(["L0H0", "L1H1"]);
  assert.deepEqual([[...steps.now.pin], [...steps.now.prune]], [[], ["L0H0", "L1H1"]]);
  steps.undo();
  assert.deepEqual([...steps.now.pin], ["L0H0"]);
  steps.redo();
  steps.pin("L1H1");
  assert.deepEqual([[...steps.now.pin], [...steps.now.prune]], [["L1H1"], ["L0H0"]]);
  assert.equal(steps.redoable, false);
  steps.undo(); steps.undo(); steps.undo();
  assert.deepEqual([steps.undoable, steps.now.least], [false, 0.1]);
});

test("boxes stand in order of computation, and arrow keys find their way", () => {
  const layout = layoutOf(keptBy(GRAPH, edits(0)));
  assert.deepEqual(layout.rows, [["input"], ["L0H0"], ["L0_MLP"], ["L1H1"], ["logits"]]);
  const heights = ["input", "L0H0", "L0_MLP", "L1H1", "logits"].map((name) => layout.places.get(name)!.y);
  assert.deepEqual(heights, [...heights].sort((a, b) => a - b));
  assert.equal(neighbour(layout, "L0H0", "ArrowDown"), "L0_MLP");
  assert.equal(neighbour(layout, "input", "ArrowUp"), null);
  assert.equal(neighbour(layout, "L0H0", "ArrowLeft"), null);
});

test("components by name, and what attends to a token", () => {
  assert.deepEqual(placeOf("L3H12"), { layer: 3, head: 12 });
  assert.deepEqual(placeOf("L0_MLP"), { layer: 0, head: null });
  assert.equal(placeOf("<b>"), null);
  assert.deepEqual(readers([[1, 0], [0.25, 0.75]], 0), [1, 0.25]);
});

test("figures of other prompts do not stand in one table", () => {
  const measured = (seed: number, n: number) => ({ request: { seed }, faithfulness: { n } });
  assert.ok(comparable(measured(1, 12), measured(1, 12)));
  assert.ok(!comparable(measured(1, 12), measured(2, 12)));
  assert.ok(!comparable(measured(1, 12), measured(1, 64)));
});

