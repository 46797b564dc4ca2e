/** One line of evidence: the value, its interval, its controls as dashed strokes, and the ends 0 and 1. */

import { h } from "../dom";
import { scale } from "../numbers";

export interface Evidence {
  experiment: string;
  measure: string;
  value: number | null;
  low: number | null;
  high: number | null;
  n: number;
  controls: Record<string, number | null>;
  rule: string;
  passed: boolean | null;
}

export function strip(evidence: Evidence): SVGElement | null {
  const { value, low, high } = evidence;
  if (low === null || high === null) return null;
  const controls = Object.values(evidence.controls).filter((one): one is number => one !== null);
  const at = scale([low, high, ...controls, ...(value === null ? [] : [value])]);
  const line = (x: number, y1: number, y2: number, name: string) => h("line", { x1: x, x2: x, y1, y2, class: name });
  return h(
    "svg",
    { viewBox: "-4 0 108 16", class: "strip", role: "img", "aria-label": `interval ${low.toFixed(3)} to ${high.toFixed(3)}` },
    h("line", { x1: 0, x2: 100, y1: 8, y2: 8, class: "axis" }),
    line(at(0), 5, 11, "axis"),
    line(at(1), 5, 11, "axis"),
    controls.map((one) => line(at(one), 2, 14, "control")),
    h("line", { x1: at(low), x2: at(high), y1: 8, y2: 8, class: "range" }),
    value === null ? null : h("circle", { cx: at(value), cy: 8, r: 2.6 }),
  );
}
