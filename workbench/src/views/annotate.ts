/** Blind rating: one text at a time, by keyboard or mouse. Nothing the server sends says who wrote a text. */

import { get, post } from "../ask";
import { field, h, replace, scrolling, type Child } from "../dom";
import { during, go, remember } from "../page";
import { keysSetting, singleKeys } from "../keys";
import type { Query } from "../address";

interface Level {
  score: number;
  name: string;
  text: string;
  key: string;
}

interface Rubric {
  measure: string;
  question: string;
  levels: Level[];
  advice: string;
}

interface Card {
  id: string;
  number: number;
  total: number;
  measure: string;
  specimen: string;
  component: string;
  text: string;
  cut: number;
  given: string | null;
  outcome: string | null;
  tag: string | null;
  reference: string | null;
  reference_tag: string | null;
  task: string | null;
  parts: [string, string][];
  examples: [unknown, unknown][];
  score: number | null;
  comment: string;
}

interface Progress {
  rater: string;
  rated: number;
  total: number;
  next: number | null;
}

/** What the text that is rated is called, and what it is held against, where that is the agent's own too. */
export function captions(measure: string): { rated: string; given: string } {
  if (measure === "plan_soundness") return { rated: "Validation plan", given: "Hypothesis" };
  if (measure === "grounding") return { rated: "Hypothesis", given: "Observation" };
  return { rated: measure === "task_accuracy" ? "Description of the task" : "Description of the component", given: "" };
}

/** What a key does while a text is shown; nothing while somebody writes. */
export function action(key: string, levels: Level[]): { score: number } | "next" | "previous" | "left" | "comment" | "undo" | null {
  const level = levels.find((one) => one.key === key);
  if (level) return { score: level.score };
  if (key === "Enter" || key === "ArrowRight") return "next";
  if (key === "ArrowLeft") return "previous";
  if (key === "n" || key === "N") return "left";
  if (key === "c" || key === "C") return "comment";
  if (key === "u" || key === "U") return "undo";
  return null;
}

export function annotate(place: Element, query: Query): (() => void) | void {
  const rater = query["rater"] ?? "";
  if (!rater) return void during(place, "Reading the texts …", async () => welcome(await get("annotation")));
  return rating(place, rater, Number(query["text"] ?? "") || null);
}

function welcome(about: any): Child {
  const name: HTMLInputElement = h("input", { name: "rater", autocomplete: "off", maxlength: 60, required: true });
  const begin = (event: Event) => { event.preventDefault(); if (name.value.trim()) go("annotate", { rater: name.value.trim().replace(/\s+/g, " ") }); };
  return [
    h("h1", {}, "Rate texts"),
    h("p", { class: "lede" }, `${about.total} texts say what components of a model do or what a whole model computes, or are the hypotheses and plans on the way there. Who wrote them is hidden. ${about.reference ? "Descriptions are shown with a reference text." : "No reference text is shown: where the rubric speaks of the reference, go by the examples and by what you know of the task."} Every score is saved at once; come back under the same name to go on.`),
    h("form", { class: "filters", onsubmit: begin }, field("Your name", name), h("button", { type: "submit" }, "Begin")),
    about.raters.length ? [h("h2", {}, "Raters so far"), progressTable(about.raters)] : null,
    h("h2", {}, "Rubric"),
    Object.values<Rubric>(about.rubrics).map(rubricText),
    h("h2", {}, "All ratings as one file"),
    files(about.finished),
  ];
}

function progressTable(raters: Progress[]): HTMLElement {
  return scrolling(h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["rater", "rated", "", "file"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, raters.map((one) => h("tr", {}, h("th", { scope: "row" }, one.rater), h("td", { class: "number" }, `${one.rated} of ${one.total}`), h("td", {}, h("button", { type: "button", "aria-label": `go on as ${one.rater}`, onclick: () => go("annotate", { rater: one.rater }) }, "Go on")), h("td", {}, h("a", { href: `/api/annotation/ratings.csv?${new URLSearchParams({ rater: one.rater })}`, download: "ratings.csv", "aria-label": `ratings of ${one.rater} as a file` }, one.next === null ? "all ratings" : "own ratings")))))));
}

function rubricText(rubric: Rubric): HTMLElement {
  return h("section", { class: "rubric" }, h("h3", {}, rubric.question), h("p", { class: "quiet" }, rubric.advice),
    h("dl", {}, rubric.levels.map((level) => [h("dt", {}, h("kbd", {}, level.key), ` ${level.name}`), h("dd", {}, level.text)])));
}

/** The file names the authors, so it is for the end: before everybody has finished, each rater has a file of their own. */
function files(finished: boolean): HTMLElement {
  const said = h("p", { role: "status" });
  const chosen: HTMLInputElement = h("input", { type: "file", accept: ".csv,text/csv" });
  const own: HTMLInputElement = h("input", { type: "text", autocomplete: "off", maxlength: 60 });
  const replacing: HTMLInputElement = h("input", { type: "checkbox" });
  const send = async (event: Event) => {
    event.preventDefault();
    const file = chosen.files?.[0];
    if (!file) return void replace(said, "Choose a file first.");
    try {
      const done = await post("annotation/import", { csv: await file.text(), rater: own.value.trim(), replace: replacing.checked });
      replace(said, `${done.added} ratings added, ${done.replaced} replaced, ${done.unchanged} were here already.`);
    } catch (error) {
      replace(said, h("span", { class: "problem" }, error instanceof Error ? error.message : String(error)));
    }
  };
  return h("div", {},
    finished ? h("p", {}, h("a", { href: "/api/annotation/ratings.csv", download: "ratings.csv", id: "all-ratings" }, "Download ratings.csv"), ". It names the authors.")
      : h("p", {}, "The file with the ratings of all is here once everybody who began has rated everything. Until then a rater has their own ratings, in the table above. The file names the authors: open it when you have rated everything."),
    h("form", { class: "filters", onsubmit: send }, field("Add the ratings of a file", chosen), field("your name, for ratings of your own", own), h("label", { class: "check" }, replacing, " replace my scores that are here"), h("button", { type: "submit" }, "Import")),
    said);
}

function rating(place: Element, rater: string, first: number | null): () => void {
  let card: Card;
  let progress: Progress;
  let levels: Level[] = [];
  let rubrics: Record<string, Rubric> = {};
  let busy: Promise<void> = Promise.resolve();
  let unsaved = false;
  const status = h("p", { class: "quiet", role: "status" });
  const panel: HTMLElement = h("section", { class: "rating", tabindex: "-1", "aria-label": "text to rate" });
  const writing: HTMLTextAreaElement = h("textarea", { rows: 2, maxlength: 4000, onchange: () => save(card.score), onkeydown: (event: KeyboardEvent) => { if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) { event.preventDefault(); panel.focus(); } } });

  /** One request after the other, so that what is pressed quickly arrives in order. */
  const then = (work: () => Promise<void>) => {
    busy = busy.then(work).catch((error) => replace(status, h("span", { class: "problem" }, `Not saved: ${error instanceof Error ? error.message : String(error)}`)));
    return busy;
  };
  const take = (answer: any) => { progress = answer.progress; if (answer.text) card = answer.text; };
  const show = (number: number | null) => then(async () => {
    take(await get("annotation/text", number ? { rater, number: String(number) } : { rater }));
    replace(status, "");
    draw();
    panel.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
  const save = (score: number | null) => {
    const at = card.id;
    const comment = writing.value;
    return then(async () => {
      unsaved = true;
      const answer = await post("annotation/rate", { rater, id: at, score, comment });
      unsaved = false;
      progress = answer.progress;
      if (card.id === at) { card = answer.text; redraw(); }
      replace(status, score === null ? "Comment saved; no score yet." : "Saved.");
    });
  };
  /** Drawing anew would drop the keyboard's place: a score's button keeps it, the rest goes to the text. */
  const redraw = () => {
    const pressed = (document.activeElement as HTMLElement | null)?.dataset["score"];
    const writes = document.activeElement === writing;
    draw();
    const again = pressed === undefined ? panel : panel.querySelector<HTMLElement>(`[data-score="${pressed}"]`) ?? panel;
    (writes ? writing : again).focus({ preventScroll: true });
  };
  const undo = () => then(async () => {
    const answer = await post("annotation/undo", { rater });
    take(answer);
    draw();
    panel.focus({ preventScroll: true });
    replace(status, answer.text ? "Taken back." : "There is nothing to take back.");
  });
  /** After a rating that was not saved the first press goes nowhere, so that the text and the reason stay on the page. */
  const stays = () => { const stay = unsaved; unsaved = false; return stay; };
  const step = (by: number) => then(async () => undefined).then(() => { if (stays()) return; const to = card.number + by; if (to >= 1 && to <= card.total) void show(to); else replace(status, by > 0 ? "This is the last text." : "This is the first text."); });
  const left = () => then(async () => undefined).then(() => { if (stays()) return; if (progress.next === null) replace(status, "Every text has a score."); else void show(progress.next); });

  const draw = () => {
    remember("annotate", { rater, text: String(card.number) });
    const rubric = rubrics[card.measure]!;
    const words = captions(card.measure);
    levels = rubric.levels;
    if (document.activeElement !== writing) writing.value = card.comment;
    replace(panel,
      h("div", { class: "progress" }, h("progress", { max: progress.total, value: progress.rated, "aria-label": "texts rated" }), h("span", {}, `${rater}: ${progress.rated} of ${progress.total} rated`)),
      h("h1", {}, `Text ${card.number} of ${card.total}`),
      h("p", { class: "path" }, `circuit ${card.specimen}${card.component ? `, component ${card.component}` : ", the whole model"}`),
      h("div", { class: "texts" },
        card.given === null ? null : h("figure", {}, h("figcaption", {}, words.given), h("blockquote", {}, card.given || h("em", {}, "Nothing was said."))),
        h("figure", { class: "candidate" }, h("figcaption", {}, words.rated, tagged(card.tag)), h("blockquote", {}, card.text || h("em", {}, "Nothing was said.")), card.cut ? h("p", { class: "quiet" }, `${card.cut} further characters are not shown.`) : null),
        card.reference === null ? null : h("figure", {}, h("figcaption", {}, "Reference", tagged(card.reference_tag)), h("blockquote", {}, card.reference || h("em", {}, "There is none for this component.")))),
      card.outcome === null ? null : h("details", { class: "came-of" }, h("summary", {}, "What came of the plan (the plan alone is rated)"), h("blockquote", {}, card.outcome)),
      context(),
      h("h2", {}, rubric.question),
      h("div", { class: "levels", role: "group", "aria-label": "score" }, levels.map((level) => h("button", { type: "button", class: "level", "data-score": level.score, "aria-pressed": card.score === level.score ? "true" : "false", "aria-keyshortcuts": level.key, onclick: () => void save(level.score) },
        h("span", { class: "name" }, h("kbd", {}, level.key), ` ${level.name}`, card.score === level.score ? h("span", { class: "given" }, " ✓ given") : null), h("span", { class: "meaning" }, level.text)))),
      field("Comment (C, then Escape)", writing),
      h("div", { class: "filters" },
        h("button", { type: "button", onclick: () => void step(-1) }, "← Previous"),
        h("button", { type: "button", onclick: () => void step(1) }, "Next →"),
        h("button", { type: "button", onclick: () => void left() }, "Next without a score (N)"),
        h("button", { type: "button", onclick: () => void undo() }, "Undo (U)"),
        h("button", { type: "button", onclick: () => go("annotate") }, "Leave"), keysSetting()),
      status,
      h("p", { class: "quiet" }, "Keys: ", levels.map((level) => [h("kbd", {}, level.key), ` ${level.name}, `]), h("kbd", {}, "Enter"), " or → next, ", h("kbd", {}, "←"), " previous, ", h("kbd", {}, "C"), " comment, ", h("kbd", {}, "U"), " undo, ", h("kbd", {}, "N"), " next without a score."));
  };
  const tagged = (tag: string | null): Child => (tag === null ? null : h("span", { class: "tag" }, ` · ${tag}`));
  const context = (): Child => {
    const circuit = card.parts.length ? h("p", {}, h("strong", {}, "Its components: "), card.parts.map(([name, tag]) => `${name} ${tag}`).join(", ")) : null;
    const task = card.component && card.task !== null ? [h("p", {}, h("strong", {}, "The whole model: "), card.task), circuit] : null;
    if (!task && !card.examples.length) return null;
    return h("details", { open: Boolean(task) }, h("summary", {}, "The task"), task,
      card.examples.length ? h("ul", { class: "examples" }, card.examples.map(([given, output]) => h("li", {}, h("code", {}, JSON.stringify(given)), " → ", h("code", {}, JSON.stringify(output))))) : null);
  };

  const pressed = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const writes = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
    if (writes || event.ctrlKey || event.metaKey || event.altKey || !card || !singleKeys()) return;
    if (event.key === "Enter" && /^(BUTTON|A|SUMMARY)$/.test(target.tagName)) return;
    const asked = action(event.key, levels);
    if (asked === null) return;
    event.preventDefault();
    if (asked === "next") void step(1);
    else if (asked === "previous") void step(-1);
    else if (asked === "left") void left();
    else if (asked === "undo") void undo();
    else if (asked === "comment") writing.focus();
    else void save(asked.score);
  };
  place.addEventListener("keydown", pressed as EventListener);
  void during(place, "Reading the texts …", async () => {
    rubrics = (await get("annotation")).rubrics;
    take(await get("annotation/text", first ? { rater, number: String(first) } : { rater }));
    draw();
    return panel;
  }).then(() => panel.focus({ preventScroll: true }));
  return () => place.removeEventListener("keydown", pressed as EventListener);
}
