/** What all views share: going to an address, showing what is under way, showing what went wrong. */

import { format, type Query } from "./address";
import { h, replace, type Child } from "./dom";
import shared from "./shared";
import { Work } from "./work";

export function link(text: Child, view: string, query: Query = {}): HTMLElement {
  return h("a", { href: format({ view, query }) }, text);
}

export function go(view: string, query: Query = {}): void {
  history.pushState(null, "", format({ view, query }));
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Keeps the address in step with what is chosen, without leaving a step in the browser's history. */
export function remember(view: string, query: Query): void {
  history.replaceState(null, "", format({ view, query }));
}

export type Ask = (path: string, body: unknown) => Promise<any>;
/** What is under way in a place: the next piece of work there ends it. */
const underWay = new WeakMap<Element, Work>();

/**
 * Shows that work is under way in `place`, then what came of it. Questions that it asks by `ask` say how far they are
 * and can be cancelled.
 */
export async function during(place: Element, text: string, work: (ask: Ask) => Promise<Child>): Promise<void> {
  underWay.get(place)?.cancel();
  const own = new Work();
  underWay.set(place, own);
  replace(place, h("p", { class: "waiting", role: "status" }, text), own.place);
  let shown: Child;
  try {
    shown = await work((path, body) => own.ask(path, body));
  } catch (error) {
    shown = h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error));
  }
  if (underWay.get(place) !== own) return; // something else is under way here by now
  underWay.delete(place);
  replace(place, shown);
}

/** Characters of a text from a result that are shown at once; a page with a megabyte in one cell could not be read. */
const LONG = 2000;

/** A text from a result; the end of a very long one is shown on request. */
export function long(text: string | null | undefined): Child {
  if (!text || text.length <= LONG) return text;
  const place = h("span", {}, `${text.slice(0, LONG)} … `);
  const more = h("button", { type: "button", onclick: () => replace(place, text) }, `Show all ${text.length.toLocaleString("en")} characters`);
  place.append(more);
  return place;
}

const MARKS: Record<string, string> = shared.verdicts;

/** A verdict is told by its mark and its word, never by colour alone. */
export function verdict(name: string | null, text = ""): HTMLElement {
  const word = name || "not made";
  return h("span", { class: `verdict ${word.replace(" ", "-")}` }, `${MARKS[word] ?? "–"} ${text || word}`);
}
