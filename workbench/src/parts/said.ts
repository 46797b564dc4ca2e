/** Texts of a language model's calls: cut at first, whole on request. */

import { get } from "../ask";
import { h, type Child } from "../dom";
import { whole } from "../numbers";

export interface Text {
  text: string;
  length: number;
}
/** Where a whole text is to be had. */
export interface Source {
  path: string;
  case: string;
  number: number;
  part: string;
}

/** Characters of one text that the server hands out. */
const MOST_SHOWN = 1_000_000;

/** A button that puts the whole text into an element, where the text is cut. */
export function more(text: Text, source: Source, into: HTMLElement): Child {
  if (text.length <= text.text.length) return null;
  const show = async (button: HTMLButtonElement) => {
    button.disabled = true;
    try {
      const answer = await get("agent/text", { path: source.path, number: String(source.number), part: source.part, ...(source.case ? { case: source.case } : {}) });
      into.textContent = answer.text;
      button.remove();
    } catch (error) {
      button.replaceWith(h("span", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  };
  const words = text.length > MOST_SHOWN ? `Show the first ${whole(MOST_SHOWN)} of ${whole(text.length)} characters` : `Show all ${whole(text.length)} characters`;
  return h("button", { type: "button", class: "more", onclick: (event: Event) => void show(event.currentTarget as HTMLButtonElement) }, words);
}

/** A text in a box that scrolls by itself, and by keyboard. */
export function said(text: Text, source: Source, label: string): Child {
  const box = h("pre", { class: "said", tabindex: 0, "aria-label": label }, text.text);
  return [box, more(text, source, box)];
}
