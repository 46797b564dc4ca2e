/** Whether single keys act, such as P for pin: a setting of the reader's, kept by the browser (WCAG 2.1.4). */

import { h } from "./dom";

const NAME = "vesalius-single-keys";

export function singleKeys(): boolean {
  try {
    return localStorage.getItem(NAME) !== "off";
  } catch {
    return true; // the browser keeps nothing
  }
}

/** The setting, as a box to tick. */
export function keysSetting(changed: () => void = () => undefined): HTMLElement {
  const box: HTMLInputElement = h("input", { type: "checkbox", checked: singleKeys(), onchange: () => {
    try {
      localStorage.setItem(NAME, box.checked ? "on" : "off");
    } catch {
      box.checked = true;
    }
    changed();
  } });
  return h("label", { class: "check" }, box, " single keys act");
}
