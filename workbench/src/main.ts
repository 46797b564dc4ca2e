/** The page: a bar with the views, and the view that the address names. */

import { parse } from "./address";
import { h, replace } from "./dom";
import { save } from "./export";
import { link } from "./page";
import { agent } from "./views/agent";
import { annotate } from "./views/annotate";
import { circuit } from "./views/circuit";
import { component } from "./views/component";
import { compare } from "./views/compare";
import { functions } from "./views/functions";
import { result } from "./views/result";
import { runs } from "./views/runs";
import { specimen, specimens } from "./views/specimen";
import { whatIf } from "./views/whatif";
import type { Query } from "./address";

type View = (place: Element, query: Query) => (() => void) | void;
const VIEWS: Record<string, View> = { runs, result, specimens, specimen, "what-if": whatIf, compare, annotate, circuit, component, agent, functions };
/** While texts are rated there is nothing else to see: results say who wrote them. */
const RATING: [string, string][] = [["Rate texts", "annotate"]];
const BAR: [string, string][] = [["Results", "runs"], ["Specimens", "specimens"], ["What if", "what-if"], ["Compare", "compare"], ["Agent", "agent"], ["Functions", "functions"]];

let leave: (() => void) | void;
let shown = false;

function show(): void {
  const { view, query } = parse(location.pathname, location.search);
  if (leave) leave();
  const place = h("main", { id: "main", tabindex: "-1" });
  replace(document.body,
    h("a", { class: "skip", href: "#main" }, "Skip to the view"),
    h("header", { class: "bar" }, h("strong", {}, "Vesalius"), h("nav", { "aria-label": "views" }, (view === "annotate" ? RATING : BAR).map(([text, name]) => { const one = link(text, name); if (name === view) one.setAttribute("aria-current", "page"); return one; })), view === "annotate" ? null : h("button", { type: "button", onclick: () => void keep(place) }, "Save this view"), h("button", { type: "button", onclick: dark }, "Light or dark")),
    place);
  const known = VIEWS[view];
  document.title = `${view} · Vesalius`;
  leave = known ? known(place, query) : void replace(place, h("p", {}, "There is no such view."));
  if (shown) place.focus(); // the keyboard goes on where the view begins, not at the top of the bar
  shown = true;
}

function scheme(): string {
  return document.documentElement.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function dark(): void {
  document.documentElement.dataset["theme"] = scheme() === "dark" ? "light" : "dark";
}

async function keep(place: Element): Promise<void> {
  try {
    await save(place, parse(location.pathname, location.search), scheme());
  } catch (error) {
    place.prepend(h("p", { class: "problem not-saved", role: "alert" }, error instanceof Error ? error.message : String(error)));
  }
}

document.addEventListener("click", (event) => {
  const anchor = (event.target as Element).closest?.("a");
  const mouse = event as MouseEvent;
  if (!anchor || mouse.ctrlKey || mouse.metaKey || mouse.shiftKey || anchor.hasAttribute("download") || anchor.hasAttribute("target")) return;
  const href = anchor.getAttribute("href") ?? "";
  if (href.startsWith("#")) { // a place of this view: the address stays
    event.preventDefault();
    const goal = document.getElementById(href.slice(1));
    goal?.scrollIntoView();
    (goal?.querySelector<HTMLElement>("[tabindex]") ?? goal)?.focus({ preventScroll: true });
    return;
  }
  if (!href.startsWith("/")) return;
  event.preventDefault();
  history.pushState(null, "", href);
  show();
});
addEventListener("popstate", show);
show();
