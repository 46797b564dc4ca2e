/** One line of evidence: the value, its interval, its controls as dashed strokes, and the ends 0 and 1. Counts beside it are not on its scale. */

import { h } from "../dom";
import { scale } from "../numbers";
import shared from "../shared";

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
  const controls = Object.entries(evidence.controls).filter(([name]) => !shared.counts.includes(name)).map(([, one]) => one).filter((one): one is number => one !== null);
  const place = scale([low, high, ...controls, ...(value === null ? [] : [value])]);
  const at = (point: number) => place(point).toFixed(1);
  const { left, width, height, middle, end_top, end_height, control_top, control_height, radius } = shared.strip;
  const path = (d: string, name: string) => h("path", { d, class: name });
  return h(
    "svg",
    { viewBox: `${left} 0 ${width} ${height}`, class: "forest strip", role: "img", "aria-label": `interval ${low.toFixed(3)} to ${high.toFixed(3)}` },
    path(`M${at(0)} ${end_top}v${end_height}M${at(1)} ${end_top}v${end_height}M${at(0)} ${middle}H${at(1)}`, "scale"),
    controls.map((one) => path(`M${at(one)} ${control_top}v${control_height}`, "control")),
    path(`M${at(low)} ${middle}H${at(high)}`, "range"),
    value === null ? null : h("circle", { cx: at(value), cy: middle, r: radius }),
  );
}
