/** A circuit drawn by layer: the tokens on top, the logits below. Few edges are drawn as SVG, many on a canvas. */

import { h, replace } from "../dom";
import { INPUT, LOGITS, rankOf, type Gaps, type GraphEdge, type Kept } from "./circuit";

export interface Point {
  x: number;
  y: number;
}
export interface Layout {
  places: Map<string, Point>;
  rows: string[][];
  width: number;
  height: number;
}
export const BOX = { width: 58, height: 28 };
const STEP = { x: 68, y: 64 };
const MARGIN = 20;
/** How far an open end stands out of its box. */
const OPEN_END = 14;
/** More edges than this are drawn on a canvas. */
export const MOST_SVG = 1200;
/** Rows are put in order by their neighbours where that is quick. */
const MOST_SORTED = 4000;
/** How far an edge that passes a row swings out, so that it does not run through a box. */
const BESIDE = 52;
const PORTS: Record<string, number> = { q: -16, k: 0, v: 16 };

export function layoutOf({ nodes, edges }: Kept): Layout {
  const ranks = new Map<number, string[]>();
  for (const name of [INPUT, ...nodes, LOGITS]) {
    const rank = rankOf(name);
    if (rank !== null) (ranks.get(rank) ?? ranks.set(rank, []).get(rank)!).push(name);
  }
  const rows = [...ranks].sort(([a], [b]) => a - b).map(([, names]) => names.sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
  if (edges.length <= MOST_SORTED) for (let sweep = 0; sweep < 4; sweep++) settle(rows, edges, sweep % 2 === 1);
  const widest = Math.max(1, ...rows.map((row) => row.length));
  const width = 2 * MARGIN + Math.max(4, widest) * STEP.x;
  const places = new Map<string, Point>();
  rows.forEach((row, line) => row.forEach((name, at) => places.set(name, { x: width / 2 + (at - (row.length - 1) / 2) * STEP.x, y: MARGIN + OPEN_END + BOX.height / 2 + line * STEP.y })));
  return { places, rows, width, height: 2 * (MARGIN + OPEN_END) + BOX.height + (rows.length - 1) * STEP.y };
}

/** Orders each row by the mean place of its neighbours. */
function settle(rows: string[][], edges: GraphEdge[], upwards: boolean): void {
  const at = new Map<string, number>();
  const note = () => rows.forEach((row) => row.forEach((name, place) => at.set(name, place - (row.length - 1) / 2)));
  note();
  const sums = new Map<string, [number, number]>();
  for (const edge of edges) {
    const [own, other] = upwards ? [edge.from, edge.to] : [edge.to, edge.from];
    const weight = Math.abs(edge.score) || 1e-9;
    const sum = sums.get(own) ?? [0, 0];
    sums.set(own, [sum[0] + weight * (at.get(other) ?? 0), sum[1] + weight]);
  }
  const mean = (name: string) => { const sum = sums.get(name); return sum ? sum[0] / sum[1] : at.get(name)!; };
  for (const row of rows) row.sort((a, b) => mean(a) - mean(b));
}

type Curve = [Point, Point, Point, Point];

function curveOf(edge: GraphEdge, places: Map<string, Point>): Curve | null {
  const from = places.get(edge.from);
  const to = places.get(edge.to);
  if (!from || !to) return null;
  const start = { x: from.x, y: from.y + BOX.height / 2 };
  const end = { x: to.x + (PORTS[edge.port] ?? 0), y: to.y - BOX.height / 2 };
  const bend = Math.max(14, (end.y - start.y) * 0.45);
  const passes = end.y - start.y > STEP.y && Math.abs(end.x - start.x) < STEP.x / 2;
  const side = passes ? (edge.port === "q" ? -BESIDE : BESIDE) : 0;
  return [start, { x: start.x + side, y: start.y + bend }, { x: end.x + side, y: end.y - bend }, end];
}

const path = ([a, b, c, d]: Curve) => `M${a.x} ${a.y}C${b.x} ${b.y} ${c.x} ${c.y} ${d.x} ${d.y}`;

/** Line widths in a few steps, by the square root of the strength. */
function stepOf(edge: GraphEdge, largest: number): number {
  return largest > 0 ? Math.ceil(4 * Math.sqrt(Math.abs(edge.score) / largest)) || 1 : 1;
}

export interface Drawing {
  layout: Layout;
  kept: Kept;
  gaps: Gaps;
  pin: ReadonlySet<string>;
  largest: number;
}

/** The picture behind the boxes; returns what it was drawn on. */
export function drawEdges(place: Element, drawing: Drawing): "svg" | "canvas" {
  const many = drawing.kept.edges.length > MOST_SVG;
  replace(place, many ? onCanvas(drawing) : asSvg(drawing));
  return many ? "canvas" : "svg";
}

function asSvg({ layout, kept, gaps, pin, largest }: Drawing): SVGElement {
  const curves = kept.edges.map((edge) => {
    const curve = curveOf(edge, layout.places);
    return curve && h("path", { d: path(curve), class: `edge s${stepOf(edge, largest)}${edge.score < 0 ? " negative" : ""}${pin.has(edge.id) ? " pinned" : ""}` });
  });
  const ends = openEnds(layout, gaps).map(([top, bottom]) => h("line", { x1: top.x, x2: bottom.x, y1: top.y, y2: bottom.y, class: "open-end" }));
  return h("svg", { viewBox: `0 0 ${layout.width} ${layout.height}`, width: layout.width, height: layout.height, "aria-hidden": "true" }, curves, ends);
}

function openEnds({ places }: Layout, gaps: Gaps): [Point, Point][] {
  const half = BOX.height / 2;
  const of = (names: string[], side: number) => names.flatMap((name): [Point, Point][] => {
    const at = places.get(name);
    return at ? [[{ x: at.x, y: at.y + side * half }, { x: at.x, y: at.y + side * (half + OPEN_END) }]] : [];
  });
  return [...of(gaps.unfed, -1), ...of(gaps.unread, 1)];
}

function onCanvas({ layout, kept, gaps, pin, largest }: Drawing): HTMLCanvasElement {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const canvas: HTMLCanvasElement = h("canvas", { width: layout.width * ratio, height: layout.height * ratio, "aria-hidden": "true" });
  canvas.style.setProperty("width", `${layout.width}px`);
  canvas.style.setProperty("height", `${layout.height}px`);
  const pen = canvas.getContext("2d")!;
  const colours = getComputedStyle(document.documentElement);
  const colour = (name: string) => colours.getPropertyValue(name).trim();
  pen.scale(ratio, ratio);
  const groups = new Map<string, Path2D>();
  for (const edge of kept.edges) {
    const curve = curveOf(edge, layout.places);
    if (!curve) continue;
    const key = pin.has(edge.id) ? "pinned" : `${edge.score < 0 ? "--cold" : "--heat"} ${stepOf(edge, largest)}`;
    const group = groups.get(key) ?? groups.set(key, new Path2D()).get(key)!;
    const [a, b, c, d] = curve;
    group.moveTo(a.x, a.y);
    group.bezierCurveTo(b.x, b.y, c.x, c.y, d.x, d.y);
  }
  for (const [key, group] of groups) {
    const [name, step] = key.split(" ");
    pen.strokeStyle = key === "pinned" ? colour("--mark") : colour(name!);
    pen.lineWidth = key === "pinned" ? 2 : 0.5 * Number(step);
    pen.globalAlpha = key === "pinned" ? 1 : 0.1 + 0.15 * Number(step);
    pen.stroke(group);
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = colour("--ink");
  pen.setLineDash([2, 3]);
  for (const [top, bottom] of openEnds(layout, gaps)) {
    pen.beginPath();
    pen.moveTo(top.x, top.y);
    pen.lineTo(bottom.x, bottom.y);
    pen.stroke();
  }
  return canvas;
}

/** The edges of one component, or one edge, in front of the others. */
export function highlight(place: Element, { layout }: Drawing, edges: GraphEdge[]): void {
  const curves = edges.slice(0, 400).map((edge) => curveOf(edge, layout.places)).filter((one) => one !== null);
  replace(place, h("svg", { viewBox: `0 0 ${layout.width} ${layout.height}`, width: layout.width, height: layout.height, "aria-hidden": "true" }, curves.map((curve) => h("path", { d: path(curve), class: "edge hot" }))));
}

/** The edge nearest to a point, if it is near. */
export function edgeAt(point: Point, { layout, kept }: Drawing, within = 7): GraphEdge | null {
  let best: GraphEdge | null = null;
  let nearest = within * within;
  for (const edge of kept.edges) {
    const curve = curveOf(edge, layout.places);
    if (!curve || point.y < curve[0].y - within || point.y > curve[3].y + within) continue;
    for (let step = 0; step <= 24; step++) {
      const distance = apart(point, along(curve, step / 24));
      if (distance < nearest) {
        nearest = distance;
        best = edge;
      }
    }
  }
  return best;
}

function along([a, b, c, d]: Curve, t: number): Point {
  const u = 1 - t;
  const mix = (p: number, q: number, r: number, s: number) => u * u * u * p + 3 * u * u * t * q + 3 * u * t * t * r + t * t * t * s;
  return { x: mix(a.x, b.x, c.x, d.x), y: mix(a.y, b.y, c.y, d.y) };
}

function apart(a: Point, b: Point): number {
  return (a.x - b.x) ** 2 + (a.y - b.y) ** 2;
}

/** The box that an arrow key leads to. */
export function neighbour(layout: Layout, name: string, key: string): string | null {
  const line = layout.rows.findIndex((row) => row.includes(name));
  const row = layout.rows[line];
  if (!row) return null;
  const at = row.indexOf(name);
  if (key === "ArrowLeft") return row[at - 1] ?? null;
  if (key === "ArrowRight") return row[at + 1] ?? null;
  const other = layout.rows[line + (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0)];
  if (!other || other === row) return null;
  const x = layout.places.get(name)!.x;
  return [...other].sort((a, b) => Math.abs(layout.places.get(a)!.x - x) - Math.abs(layout.places.get(b)!.x - x))[0] ?? null;
}
