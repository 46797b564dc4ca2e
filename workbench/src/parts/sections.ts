/**
 * The view of a result: an answer and sections, laid out in the order in which the server sends them.
 *
 * One renderer a kind of section, none for a kind of document: what a terminal prints and a static page shows is here
 * too. Curves, graphs and grids come drawn, as the static page has them; a map of heads is made of buttons.
 */

import { h, replace, scrolling, type Child } from "../dom";
import { number } from "../numbers";
import { go, link, long, verdict } from "../page";
import { claim } from "./claim";
import { headMap } from "./headmap";

export interface Section {
  kind: string;
  id: string;
  title: string;
  caption: string;
  folded: boolean;
  [content: string]: any;
}
export interface ViewData {
  title: string;
  verdict: string | null;
  answer: string;
  next: string | null;
  sections: Section[];
  command: string | null;
  note: string;
  names: string[];
}
interface Cell {
  text: string;
  value: string;
  number: boolean;
  address: string;
  verdict: string;
  remark: string;
  unclear: boolean;
}
/** What a place in a view can lead to: `page` is the address of the static page, `about` says more of a component. */
export interface Around {
  page?: string;
  about?: (component: string) => Child;
}
type Renderer = (one: Section, view: Laid) => Child;
interface Laid extends Around {
  names: string[];
}

/** A view below its heading: the answer, every section, the command that repeats it. */
export function viewOf(view: ViewData, around: Around = {}): HTMLElement {
  const laid = { ...around, names: view.names };
  const answer = h("p", { class: "lede" }, view.verdict ? h("strong", {}, `${view.verdict[0]!.toUpperCase()}${view.verdict.slice(1)}. `) : null, text(view.answer, view.names));
  const again = view.command ? [h("p", { class: "quiet" }, "The same on the command line. ", view.note), h("pre", {}, view.command)] : view.note ? h("p", { class: "quiet" }, view.note) : null;
  const next = view.next ? h("p", { class: "next" }, "Next: ", h("code", {}, view.next)) : null;
  return h("div", { class: "view" }, answer, next, sections(view.sections, 2, laid), again);
}

export function sections(list: Section[], level: number, view: Laid): Child[] {
  return list.map((one) => section(one, level, view));
}

function section(one: Section, level: number, view: Laid): Child {
  if (one.kind === "group" && !one["side_by_side"] && !one.folded) return group(one, level, view);
  const own = one.kind === "group" ? null : (RENDERERS[one.kind] ?? (() => null))(one, view);
  const inside = one.kind === "group" ? sections(one["sections"], level + 1, view) : own;
  const caption = one.caption && !["bars", "grid"].includes(one.kind) ? h("p", { class: "quiet caption" }, one.caption) : null;
  if (one["side_by_side"]) return h("div", { class: "beside" }, inside);
  if (one.folded) return h("details", { id: one.id }, h("summary", {}, one.title), inside, caption);
  const titled = one.title && !["bars", "grid"].includes(one.kind);
  return [titled ? h(`h${level}`, { id: one.id }, one.title) : null, inside, caption];
}

function group(one: Section, level: number, view: Laid): Child {
  const about = one["name"] && view.about ? view.about(one["name"]) : null;
  const marks = one["verdict"] ? h("p", { class: "marks" }, one["tag"] ? tag(one["tag"]) : null, verdict(one["verdict"]), about) : about;
  return h(one["name"] ? "article" : "section", { id: one.id, class: one["name"] ? `part ${one["tag"] || "untagged"}` : null },
    h(`h${level}`, { tabindex: -1 }, one.title, one["name"] && one.caption ? h("span", { class: "quiet" }, ` ${one.caption}`) : null), marks,
    !one["name"] && one.caption ? h("p", { class: "quiet caption" }, one.caption) : null,
    sections(one["sections"], level + 1, view));
}

const RENDERERS: Record<string, Renderer> = {
  facts: (one, view) => h("dl", { class: "facts" }, one["rows"].map(([label, words]: [string, string]) => h("div", {}, label ? h("dt", {}, label) : h("dt", { class: "unseen" }, "in short"), h("dd", {}, text(words, view.names))))),
  text: (one, view) => (one["bullets"] ? h("ul", {}, one["words"].map((words: string) => h("li", {}, text(words, view.names)))) : one["words"].map((words: string) => h("p", { class: one["quiet"] ? "quiet" : "prose" }, text(words, view.names)))),
  code: (one) => h("pre", { tabindex: 0, "aria-label": one.title || "program" }, long(one["text"])),
  sheet,
  chart: (one) => drawing(one["svg"], one.title),
  graph: (one) => (one["svg"] ? [drawing(one["svg"], "drawing of the circuit"), one["legend"] ? legend(one["legend"]) : null] : one["words"] ? h("p", { class: "quiet" }, one["words"]) : null),
  grid: (one) => h("figure", { class: "grid" }, h("figcaption", {}, one.title), drawing(one["svg"], one.title)),
  headmap: (one, view) => {
    const ask: Record<string, string> = one["ask"];
    const told = leadsToSections(Object.keys(one["values"]), view.names);
    const pick = told ? reveal : ask["specimen"] ? (component: string) => go("what-if", { ...ask, components: component }) : null;
    return [headMap({ layers: one["layers"], heads: one["heads"], values: new Map(Object.entries<number>(one["values"])), unclear: new Set(one["unclear"]), chosen: new Set(), marked: new Set(one["marked"]), unit: one["unit"], key: one["key"], pick }), one["bar"] ? drawing(one["bar"], "scale") : null, pick ? h("p", { class: "quiet" }, told ? "Choose a component to read what it is." : "Choose a component to replace it.") : null];
  },
  scale: (one) => drawing(one["bar"], "scale"),
  bars,
  tokens: (one) => scrolling(h("table", { class: "list" }, h("tbody", {}, one["rows"].map(([name, list]: [string, [string, number, number][]]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "running" }, list.map(([token, value, shade]) => h("span", { class: `fires f${Math.abs(shade)}${shade < 0 ? " negative" : ""}`, title: number(value) }, token)))))))),
  claims: (one) => one["claims"].map((record: any) => claim(record)),
};

function sheet(one: Section, view: Laid): Child {
  const rows: Cell[][] = one["rows"];
  const body = h("tbody", {}, rows.map((row) => line(row, view)));
  const head = h("tr", {}, one["columns"].map(([name, figures, sorted]: [string, boolean, string], at: number) => {
    const cell = h("th", { scope: "col", class: figures ? "number" : null, "aria-sort": one["sortable"] ? sorted : null });
    cell.append(one["sortable"] && name ? h("button", { type: "button", class: "sort", onclick: () => sort(at, figures, cell) }, name) : name);
    return cell;
  }));
  const sort = (at: number, figures: boolean, cell: HTMLElement) => {
    const direction = cell.getAttribute("aria-sort") === (figures ? "descending" : "ascending") ? -1 : 1;
    const [up, first] = figures ? [-direction, "descending"] : [direction, "ascending"];
    for (const other of head.children) other.setAttribute("aria-sort", "none");
    cell.setAttribute("aria-sort", direction === 1 ? first : first === "ascending" ? "descending" : "ascending");
    const ordered = [...rows].sort((a, b) => compared(a[at]!.value || a[at]!.text, b[at]!.value || b[at]!.text, figures, up));
    replace(body, ordered.map((row) => line(row, view)));
  };
  const left = one["left_out"] ? h("p", { class: "quiet" }, `Not shown: ${one["left_out"].toLocaleString("en")} more rows; the file has them all.`) : null;
  return rows.length ? [h("div", { class: `scroll${rows.length > 30 ? " tall" : ""}`, tabindex: 0, role: "group", "aria-label": "scrolls sideways" }, h("table", { class: "list" }, h("thead", {}, head), body)), left] : h("p", { class: "quiet" }, "None.");
}

/** Rows by a column; those without a value come last, whichever way. */
export function compared(a: string, b: string, figures: boolean, direction: number): number {
  if (a === "" || b === "") return Number(a === "") - Number(b === "");
  return direction * (figures ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true }));
}

function line(row: Cell[], view: Laid): HTMLElement {
  return h("tr", {}, row.map((cell, at) => h(at ? "td" : "th", { scope: at ? null : "row", class: cell.number ? (cell.unclear ? "number quiet" : "number") : null }, cellOf(cell, view))));
}

function cellOf(cell: Cell, view: Laid): Child {
  const shown = cell.verdict ? verdict(cell.verdict, cell.text) : cell.address ? cell.text : text(cell.text, view.names);
  const remark = cell.remark ? h("span", { class: "quiet" }, cell.remark) : null;
  return [cell.address ? leading(shown, cell.address, view) : shown, remark];
}

/** A link of a cell: a place on this page, a view, or a file beside the static page. */
function leading(shown: Child, address: string, view: Laid): Child {
  if (address.startsWith("#") || address.startsWith("/")) return h("a", { href: address }, shown);
  return view.page ? h("a", { href: `${view.page.replace(/[^/]*$/, "")}${address}`, target: "_blank" }, shown) : shown;
}

/** A text in which the names of components lead to their sections; the end of a very long one is shown on request. */
function text(words: string, names: string[]): Child {
  if (words.length > 2000 || !names.length) return long(words);
  const escaped = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return words.split(new RegExp(`(?<!\\w)(${escaped.join("|")})(?!\\w)`)).map((piece, at) => (at % 2 ? h("a", { href: `#${anchor(piece)}` }, piece) : piece));
}

export function anchor(name: string): string {
  return `component-${name.replace(/[^A-Za-z0-9_-]/g, "-")}`;
}

/** Whether all that a map shows has a section of its own, as in an atlas: then its cells lead there. */
export function leadsToSections(shown: string[], names: string[]): boolean {
  const own = new Set(names);
  return shown.length > 0 && shown.every((name) => own.has(name));
}

function reveal(component: string): void {
  const goal = document.getElementById(anchor(component));
  goal?.scrollIntoView();
  goal?.querySelector<HTMLElement>("[tabindex]")?.focus({ preventScroll: true });
}

/** A drawing of the static page: parsed as XML, so that a text in it stays a text. */
export function drawing(svg: string, label: string): HTMLElement {
  const parsed = new DOMParser().parseFromString(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '), "image/svg+xml").documentElement;
  const shown = parsed.nodeName === "svg" ? document.importNode(parsed, true) : h("p", { class: "quiet" }, "This drawing cannot be shown.");
  return h("div", { class: "scroll drawing", tabindex: 0, role: "group", "aria-label": label || "drawing" }, shown);
}

function bars(one: Section): Child {
  const rows = one["rows"].map((bar: any) => h("tr", {}, h("th", { scope: "row" }, bar.label),
    h("td", {}, h("svg", { viewBox: "-2 0 104 14", width: 104, height: 14, "aria-hidden": "true" }, h("path", { class: "scale", d: `M${bar.zero} 1v12` }), h("rect", { class: bar.figures[0] < 0 ? "minus" : "plus", x: bar.left, y: 3, width: bar.width, height: 8 }), h("path", { class: "range", d: `M${bar.low} 7H${bar.high}` }))),
    h("td", { class: "number" }, bar.figures[0].toFixed(2), h("span", { class: "quiet" }, `${bar.figures[1].toFixed(2)} to ${bar.figures[2].toFixed(2)}`))));
  return h("div", {}, scrolling(h("table", { class: "list bars" }, h("caption", {}, one.title), h("tbody", {}, rows))), one.caption ? h("p", { class: "quiet caption" }, one.caption) : null);
}

function tag(name: string): HTMLElement {
  return h("span", { class: "tag" }, h("span", { class: `swatch ${name}`, "aria-hidden": "true" }), name);
}

function legend({ tags, gaps }: { tags: Record<string, string>; gaps: boolean }): HTMLElement {
  const key = (...children: Child[]) => h("svg", { class: "key drawn", viewBox: "0 0 34 16", width: 34, height: 16, "aria-hidden": "true" }, children);
  const box = (round: number) => key(h("rect", { class: "box", x: 1, y: 2, width: 32, height: 12, rx: round }));
  const edge = (kind: string, ...paths: [string, number][]) => key(h("g", { class: `edge${kind}` }, paths.map(([d, width]) => h("path", { d, "stroke-width": width }))));
  return h("ul", { class: "legend" },
    Object.entries(tags).map(([name, meaning]) => h("li", {}, tag(name), " ", h("span", { class: "quiet" }, meaning))),
    h("li", {}, box(6), " attention head"), h("li", {}, box(1), " MLP"),
    h("li", {}, edge("", ["M1 5H33", 1.2], ["M1 12H33", 5]), " weak and strong measured edge"),
    h("li", {}, edge(" negative", ["M1 8H33", 2]), " edge of negative strength"),
    gaps ? h("li", {}, key(h("path", { class: "open-end", d: "M1 8H33" })), " not established what it reads or writes to") : null,
    h("li", {}, ["supported", "refuted", "undecided", "untested"].map((one) => [verdict(one), " "])));
}

/** A link to the page of a result that needs no server. */
export function staticPage(address: string): HTMLElement {
  return h("a", { href: address, target: "_blank" }, "Its page without a server");
}

/** The page of one component of a result. */
export function componentLink(name: string, query: Record<string, string>): Child {
  return /^L\d+(H\d+|_MLP)$/.test(name) ? link("Look at it", "component", { ...query, component: name }) : null;
}
