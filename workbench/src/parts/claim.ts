/** A claim with its evidence: verdict, sentence, and each line with its interval and controls. */

import { h, type Child } from "../dom";
import { figure } from "../numbers";
import { long, verdict } from "../page";
import { strip, type Evidence } from "./strip";

export interface ClaimRecord {
  kind: string;
  text: string;
  verdict: string;
  evidence: Evidence[];
}

export function claim(one: ClaimRecord, ...more: Child[]): HTMLElement {
  return h("section", { class: "claim" }, h("h3", {}, verdict(one.verdict), " ", long(one.text)), one.evidence.map(evidenceLine), more);
}

export function evidenceLine(line: Evidence): HTMLElement {
  return h("div", { class: "evidence" },
    h("span", { class: "mark" }, line.passed === null ? "–" : line.passed ? "pass" : "FAIL"),
    h("span", {}, `${line.experiment}: ${line.measure} `, h("b", {}, figure(line)), `, n ${line.n}`, h("span", { class: "quiet" }, line.rule)),
    strip(line));
}
