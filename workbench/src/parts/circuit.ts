/** A circuit that is being pruned: what stays, where it has gaps, and every step back and forth. */

export interface GraphNode {
  id: string;
  score: number | null;
  role?: string;
  verdict?: string;
}
export interface GraphEdge {
  id: string;
  from: string;
  to: string;
  port: string;
  score: number;
}
export interface Graph {
  kind: "discovery" | "explanation";
  by: "edges" | "components";
  nodes: GraphNode[];
  /** The strongest first. */
  edges: GraphEdge[];
}
export interface Edits {
  least: number;
  pin: ReadonlySet<string>;
  prune: ReadonlySet<string>;
}
export interface Kept {
  nodes: Set<string>;
  edges: GraphEdge[];
}
export const INPUT = "input";
export const LOGITS = "logits";

/** `a0.h1` and `m0` as they are written elsewhere on the page. */
export function canonical(name: string): string {
  return name.replace(/^a(\d+)\.h(\d+)$/, "L$1H$2").replace(/^m(\d+)$/, "L$1_MLP");
}

export function edgeOf(id: string, score: number): GraphEdge | null {
  const found = /^(.+?)->(.+?)(?:<([qkv])>)?$/.exec(id);
  return found ? { id, from: canonical(found[1]!), to: canonical(found[2]!), port: found[3] ?? "", score } : null;
}

/** Order of computation: the tokens, the heads and then the MLP of each layer, the logits; null for any other name. */
export function rankOf(name: string): number | null {
  if (name === INPUT) return 0;
  if (name === LOGITS) return Infinity;
  const found = /^L(\d+)(?:H\d+|(_MLP))$/.exec(name);
  return found ? 2 * Number(found[1]) + (found[2] ? 2 : 1) : null;
}

/** How many of the edges, the strongest first, reach a score. */
export function countFrom(scores: number[], least: number): number {
  let low = 0;
  let high = scores.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (Math.abs(scores[middle]!) >= least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What stays in the circuit, by the rule of the server: pinned, or strong enough and not pruned. */
export function keptBy(graph: Graph, { least, pin, prune }: Edits): Kept {
  const whole = (edge: GraphEdge) => !prune.has(edge.from) && !prune.has(edge.to);
  if (graph.by === "components") {
    const strong = (node: GraphNode) => graph.kind === "explanation" || Math.abs(node.score ?? 0) >= least;
    const nodes = new Set(graph.nodes.filter((node) => pin.has(node.id) || (strong(node) && !prune.has(node.id))).map((node) => node.id));
    const inside = (name: string) => name === INPUT || name === LOGITS || nodes.has(name);
    return { nodes, edges: graph.edges.filter((edge) => Math.abs(edge.score) >= least && inside(edge.from) && inside(edge.to)) };
  }
  const strong = countFrom(graph.edges.map((edge) => edge.score), least);
  const edges = graph.edges.filter((edge, place) => (pin.has(edge.id) || (place < strong && !prune.has(edge.id))) && whole(edge));
  const nodes = new Set([...pin].filter((name) => !name.includes("->")));
  for (const edge of edges) for (const end of [edge.from, edge.to]) if (end !== INPUT && end !== LOGITS) nodes.add(end);
  return { nodes, edges };
}

export interface Gaps {
  /** Components that nothing kept leads into, and those that lead nowhere. */
  unfed: string[];
  unread: string[];
  /** Components on no path from the tokens to the logits. */
  apart: string[];
}

export function gapsOf({ nodes, edges }: Kept): Gaps {
  const after = new Map<string, string[]>();
  const before = new Map<string, string[]>();
  for (const { from, to } of edges) {
    (after.get(from) ?? after.set(from, []).get(from)!).push(to);
    (before.get(to) ?? before.set(to, []).get(to)!).push(from);
  }
  const reached = walk(INPUT, after);
  const reaching = walk(LOGITS, before);
  const all = [...nodes];
  return { unfed: all.filter((one) => !before.has(one)), unread: all.filter((one) => !after.has(one)), apart: all.filter((one) => !reached.has(one) || !reaching.has(one)) };
}

function walk(start: string, next: Map<string, string[]>): Set<string> {
  const seen = new Set([start]);
  const open = [start];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    for (const one of next.get(at) ?? []) {
      if (!seen.has(one)) {
        seen.add(one);
        open.push(one);
      }
    }
  }
  return seen;
}

/** The slider goes by the number of edges on a logarithmic scale, so that the first few can be told apart. */
export const SLIDER = 1000;

export function thresholdAt(position: number, scores: number[]): number {
  const count = Math.round(Math.pow(scores.length + 1, position / SLIDER)) - 1;
  if (count <= 0) return scores.length ? Math.abs(scores[0]!) * (1 + 1e-9) + Number.MIN_VALUE : 0;
  return Math.abs(scores[Math.min(count, scores.length) - 1]!);
}

export function positionOf(least: number, scores: number[]): number {
  return scores.length ? Math.round((SLIDER * Math.log(countFrom(scores, least) + 1)) / Math.log(scores.length + 1)) : SLIDER;
}

/** Every step, so that it can be undone. */
export class Steps {
  private past: Edits[] = [];
  private future: Edits[] = [];
  constructor(public now: Edits) {}

  get undoable(): boolean {
    return this.past.length > 0;
  }
  get redoable(): boolean {
    return this.future.length > 0;
  }
  to(next: Partial<Edits>): void {
    this.past.push(this.now);
    this.future = [];
    this.now = { ...this.now, ...next };
  }
  undo(): void {
    const last = this.past.pop();
    if (!last) return;
    this.future.push(this.now);
    this.now = last;
  }
  redo(): void {
    const next = this.future.pop();
    if (!next) return;
    this.past.push(this.now);
    this.now = next;
  }
  /** Pinning takes a part back that was pruned, and pruning unpins. */
  pin(name: string): void {
    this.to({ pin: toggled(this.now.pin, name), prune: without(this.now.prune, [name]) });
  }
  prune(names: string[]): void {
    this.to({ prune: new Set([...this.now.prune, ...names]), pin: without(this.now.pin, names) });
  }
  restore(name: string): void {
    this.to({ prune: without(this.now.prune, [name]) });
  }
}

function toggled(set: ReadonlySet<string>, name: string): Set<string> {
  return set.has(name) ? without(set, [name]) : new Set([...set, name]);
}

function without(set: ReadonlySet<string>, names: string[]): Set<string> {
  return new Set([...set].filter((one) => !names.includes(one)));
}
