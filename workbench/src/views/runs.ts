/** Every result below the directory, with filters. Only what changed is asked for and drawn again. */

import { get } from "../ask";
import { field, h, replace, select, scrolling } from "../dom";
import { duration } from "../numbers";
import { during, go, link, remember } from "../page";
import type { Query } from "../address";

export interface Row {
  path: string;
  kind: string;
  title: string;
  state: string;
  figures: string;
  done?: number | null;
  total?: number | null;
  cost?: number | null;
  seconds?: number | null;
  modified: number;
  started?: number | null;
  has_calls?: boolean;
  problem: string;
}

const ANY = "any";
const AGAIN = 2000;
/** Rows that are drawn at once; the filters find the others. */
const MOST = 500;
const MARKS: Record<string, string> = { running: "▶ ", finished: "✓ ", unfinished: "❙❙ ", unreadable: "✗ " };
const COLUMNS = ["", "result", "kind", "state", "answer", "cost", "took", "changed"];

export function matches(row: Row, kind: string, state: string, words: string): boolean {
  const text = `${row.path} ${row.title} ${row.figures}`.toLowerCase();
  return (kind === ANY || row.kind === kind) && (state === ANY || row.state === state) && words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Rows after a change: new ones put in, others replaced, those that are gone left out; the latest first. */
export function merged(rows: Map<string, Row>, changed: Row[], gone: string[]): Map<string, Row> {
  const after = new Map(rows);
  for (const path of gone) after.delete(path);
  for (const row of changed) after.set(row.path, row);
  return new Map([...after].sort(([, a], [, b]) => b.modified - a.modified));
}

/** Where a row leads: a run that goes on, that has no result, or that is calls of tools, to the agent; a functions run to
 * its functions. */
export function view(row: Row): string {
  if (row.kind === "mcp") return "agent";
  if (row.kind === "benchmark" && row.title.startsWith("bench functions")) return "functions";
  return row.state === "finished" ? "result" : "agent";
}

export function progress(row: Row): string {
  return `${MARKS[row.state] ?? ""}${row.state}${row.total ? `, ${row.done ?? 0} of ${row.total}` : ""}`;
}

export function runs(place: Element, query: Query): () => void {
  let rows = new Map<string, Row>();
  let version = 0;
  let leftOut = 0;
  let kind = query["kind"] ?? ANY;
  let state = query["state"] ?? ANY;
  let words = query["words"] ?? "";
  let timer = 0;
  let left = false;
  const picked = new Set<string>();
  const drawn = new Map<string, { mark: string; element: HTMLElement }>();
  const caption = h("caption", {});
  const body = h("tbody", {});
  const none = h("p", {});
  const table = scrolling(h("table", { class: "list" }, caption, h("thead", {}, h("tr", {}, COLUMNS.map((one) => (one ? h("th", { scope: "col" }, one) : h("td", {}))))), body));
  const kinds = h("div", {});
  const compare: HTMLButtonElement = h("button", { type: "button", disabled: true, onclick: () => { const [a, b] = [...picked]; go("compare", { a: a!, b: b! }); } }, "Compare the two chosen");

  const line = (row: Row) => h("tr", { "data-path": row.path },
    h("td", {}, h("input", { type: "checkbox", "aria-label": `compare ${row.path}`, checked: picked.has(row.path), onchange: (event: Event) => { (event.target as HTMLInputElement).checked ? picked.add(row.path) : picked.delete(row.path); compare.disabled = picked.size !== 2; } })),
    h("th", { scope: "row" }, row.state === "unreadable" ? row.path : link(row.path, view(row), { path: row.path }), h("span", { class: "quiet" }, row.title), row.has_calls && view(row) === "result" ? h("span", { class: "quiet" }, link("how it came about", "agent", { path: row.path })) : null),
    h("td", {}, row.kind),
    h("td", {}, progress(row)),
    h("td", {}, row.problem || row.figures),
    h("td", { class: "number" }, row.cost ? `$${row.cost.toFixed(2)}` : ""),
    h("td", { class: "number" }, row.state === "running" && row.started ? duration(Math.max(0, Date.now() / 1000 - row.started)) : duration(row.seconds)),
    h("td", {}, new Date(1000 * row.modified).toLocaleString()));

  /** Puts the rows in order, and makes only those anew that are not as they were drawn. */
  const draw = () => {
    remember("runs", { kind: kind === ANY ? "" : kind, state: state === ANY ? "" : state, words });
    const shown = [...rows.values()].filter((row) => matches(row, kind, state, words));
    caption.textContent = `${shown.length} of ${rows.size} results, the latest first${shown.length > MOST ? `; the first ${MOST} are shown` : ""}${leftOut ? `; ${leftOut} older ones are left out` : ""}`;
    none.textContent = rows.size ? "No result matches." : "No results here yet. `vesalius explain`, `discover`, `sweep` and `bench` write some.";
    none.hidden = shown.length > 0;
    table.hidden = shown.length === 0;
    let at: Element | null = body.firstElementChild;
    for (const row of shown.slice(0, MOST)) {
      const mark = JSON.stringify(row) + (row.state === "running" ? Date.now() : "");
      let known = drawn.get(row.path);
      if (known?.mark !== mark) {
        const element = line(row);
        const focused = known?.element.contains(document.activeElement) ? document.activeElement!.tagName : "";
        if (known?.element.parentNode) {
          if (at === known.element) at = element;
          known.element.replaceWith(element);
        }
        if (focused) element.querySelector(focused)?.focus();
        known = { mark, element };
        drawn.set(row.path, known);
      }
      if (known!.element === at) at = at!.nextElementSibling;
      else body.insertBefore(known!.element, at);
    }
    while (at) {
      const next: Element | null = at.nextElementSibling;
      at.remove();
      at = next;
    }
  };
  const choices = () => replace(kinds, field("kind", select([ANY, ...new Set([...rows.values()].map((row) => row.kind))], kind, (value) => { kind = value; draw(); })));

  const look = async () => {
    const answer = await get("changes", { since: String(version) });
    if (left) return;
    const before = new Set([...rows.values()].map((row) => row.kind)).size;
    rows = merged(version ? rows : new Map(), answer.rows, answer.gone);
    for (const path of answer.gone) drawn.delete(path);
    const changed = answer.rows.length || answer.gone.length || !version || [...rows.values()].some((row) => row.state === "running");
    version = answer.version;
    leftOut = answer.left_out;
    if (new Set([...rows.values()].map((row) => row.kind)).size !== before) choices();
    if (changed) draw();
  };
  const again = () => {
    timer = setTimeout(() => {
      if (document.hidden) return again();
      return void look().catch(() => undefined).finally(() => { if (!left) again(); });
    }, AGAIN) as unknown as number;
  };
  void during(place, "Looking for results …", async () => {
    await look();
    if (left) return [];
    choices();
    again();
    return [
      h("h1", {}, "Results"),
      h("form", { class: "filters", onsubmit: (event: Event) => event.preventDefault() },
        kinds,
        field("state", select([ANY, "running", "finished", "unfinished", "unreadable"], state, (value) => { state = value; draw(); })),
        field("words", h("input", { type: "search", value: words, oninput: (event: Event) => { words = (event.target as HTMLInputElement).value; draw(); } })),
        compare),
      none,
      table,
    ];
  });
  return () => { left = true; clearTimeout(timer); };
}
