/** A claim with its evidence: verdict, sentence, and each line with its interval and controls. */

import { field, h, type Child } from "../dom";
import { figure, number } from "../numbers";
import { during, long, verdict } from "../page";
import { strip, type Evidence } from "./strip";

export interface ClaimRecord {
  kind: string;
  text: string;
  verdict: string;
  evidence: Evidence[];
}
/** A claim with its place: its number among those about its component, and why it cannot be tested again, if so. */
export interface PlacedClaim extends ClaimRecord {
  component: string;
  number: number;
  refusal: string | null;
}

export function claim(one: ClaimRecord, ...more: Child[]): HTMLElement {
  return h("section", { class: "claim" }, h("h3", {}, verdict(one.verdict), " ", long(one.text)), one.evidence.map(evidenceLine), more);
}

export function evidenceLine(line: Evidence): HTMLElement {
  return h("div", { class: "evidence" },
    h("span", { class: "mark" }, line.passed === null ? "–" : line.passed ? "pass" : "FAIL"),
    h("span", {}, `${line.experiment}: ${line.measure} `, h("b", {}, figure(line)), `, n ${line.n}`, controls(line), h("span", { class: "quiet" }, line.rule)),
    strip(line));
}

/** Every control by its name. */
function controls(line: Evidence): Child {
  const each = Object.entries(line.controls).map(([name, value]) => `${/^[a-z_]+$/.test(name) ? name.replace(/_/g, " ") : name} ${number(value)}`);
  return each.length ? h("span", { class: "quiet" }, `controls: ${each.join(", ")}`) : null;
}

/** A claim before and after it was tested again. */
export function bothSides(document: any): HTMLElement[] {
  const side = (title: string, record: ClaimRecord, name: string) => h("div", { class: name }, h("h4", {}, title, ": ", verdict(record.verdict)), record.evidence.map(evidenceLine));
  return [
    h("p", { class: "outcome" }, document.same ? "The same verdict." : "Another verdict."),
    h("div", { class: "sides" }, side(`seed ${document.before_seed}, in the explanation`, document.before, "before"), side(`seed ${document.request.seed}`, document.after, "after"))];
}

/** A claim's experiment on the inputs of another seed, and both outcomes side by side. */
export function testAgain(path: string, component: string, number: number, own: number): HTMLElement {
  const seed: HTMLInputElement = h("input", { type: "number", min: 0, max: 2 ** 31, value: own + 1, class: "seed", "aria-label": `seed for claim ${number} about ${component}` });
  const found = h("div", { "aria-live": "polite" });
  const test = () => during(found, "Running its experiment on other inputs …", async (ask) => {
    const { document, command } = await ask("retest", { path, component, claim: number, seed: Number(seed.value) });
    return [...bothSides(document), document.request.specimen ? h("pre", {}, command) : null];
  });
  return h("div", { class: "again" }, h("form", { class: "filters", onsubmit: (event: Event) => { event.preventDefault(); void test(); } }, field("seed", seed), h("button", { type: "submit", class: "small", "aria-label": `test claim ${number} about ${component} again` }, "Test again with this seed")), found);
}
