/** A circuit as a graph: choose a score threshold, pin and prune parts, and ask how much of the behaviour it still keeps. */

import { get, post } from "../ask";
import { field, h, replace, scrolling } from "../dom";
import { figure, signed } from "../numbers";
import { during, link, remember } from "../page";
import { edgeOf, gapsOf, INPUT, keptBy, LOGITS, positionOf, SLIDER, Steps, thresholdAt, type Graph, type GraphEdge, type Kept } from "../parts/circuit";
import { drawEdges, edgeAt, highlight, layoutOf, neighbour, BOX, type Drawing } from "../parts/graph";
import { strip } from "../parts/strip";
import { keysSetting, singleKeys } from "../keys";
import type { Query } from "../address";

/** Edges of a component that its table lists. */
const LISTED = 30;
const NAMES: Record<string, string> = { [INPUT]: "tokens", [LOGITS]: "logits" };
const shown = (name: string) => NAMES[name] ?? name;

export function circuit(place: Element, query: Query): (() => void) | void {
  const path = query["path"] ?? "";
  if (!path) {
    void during(place, "", async () => [h("h1", {}, "Circuit"), h("p", {}, "Choose a discovery or an explanation in the list of ", link("results", "runs"), ".")]);
    return;
  }
  let view: CircuitView | null = null;
  void during(place, "Reading the circuit …", async () => {
    view = new CircuitView(await get("circuit", { path }), path, query);
    return view.elements();
  });
  const keys = (event: KeyboardEvent) => view?.shortcut(event);
  const theme = new MutationObserver(() => view?.draw(false));
  theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  addEventListener("keydown", keys);
  return () => {
    removeEventListener("keydown", keys);
    theme.disconnect();
  };
}

interface Measured {
  label: string;
  document: any;
}

class CircuitView {
  private graph: Graph;
  private scores: number[];
  private steps: Steps;
  private drawing!: Drawing;
  private chosen: string | null = null;
  private focused: string | null = null;
  private measured: Measured[] = [];
  private n: number;
  private seed: number;
  private picture = h("div", { class: "picture" });
  private hot = h("div", { class: "picture hot-layer" });
  private boxes = h("div", { class: "boxes" });
  private stage = h("div", { class: "stage" }, this.picture, this.hot, this.boxes);
  private status = h("p", { role: "status", class: "size" });
  private gaps = h("div", {});
  private chips = h("div", { class: "chips" });
  private panel = h("section", { class: "panel", "aria-label": "what is chosen" });
  private figures = h("div", { "aria-live": "polite" });
  private files = h("div", { "aria-live": "polite" });
  private slider: HTMLInputElement = h("input", { type: "range", min: 0, max: SLIDER, step: 1 });
  private exact: HTMLInputElement = h("input", { type: "number", min: 0, step: "any", class: "exact" });
  private undo: HTMLButtonElement = h("button", { type: "button", onclick: () => { this.steps.undo(); this.draw(); } }, "Undo");
  private redo: HTMLButtonElement = h("button", { type: "button", onclick: () => { this.steps.redo(); this.draw(); } }, "Redo");
  private waiting = 0;
  /** Whether the circuit of an explanation is that of the paths that were measured. */
  private paths = false;

  constructor(private data: any, private path: string, query: Query) {
    const edges = data.edges.map(([id, score]: [string, number]) => edgeOf(id, score)).filter((edge: GraphEdge | null) => edge !== null);
    this.graph = { kind: data.kind, by: data.by, nodes: data.nodes, edges };
    const scored = edges.length || data.kind === "explanation" ? edges.map((edge: GraphEdge) => edge.score) : data.nodes.map((node: any) => node.score ?? 0);
    this.scores = scored;
    const names = (name: string) => new Set((query[name] ?? "").split(",").filter(Boolean));
    const least = Number(query["least"] ?? data.least);
    this.steps = new Steps({ least: Number.isFinite(least) && least >= 0 ? least : 0, pin: names("pin"), prune: names("prune") });
    this.paths = data.kind === "explanation" && query["paths"] === "yes" && data.n_edges > 0;
    this.n = Number(query["n"] ?? 12) || 12;
    this.seed = Number(query["seed"] ?? 0) || 0;
    this.slider.addEventListener("input", () => this.slide());
    this.slider.addEventListener("change", () => { this.steps.to({ least: thresholdAt(Number(this.slider.value), this.scores) }); this.draw(); });
    this.exact.addEventListener("change", () => { this.steps.to({ least: Math.max(0, Number(this.exact.value) || 0) }); this.draw(); });
    this.stage.addEventListener("click", (event: MouseEvent) => this.click(event));
  }

  elements(): HTMLElement[] {
    this.draw();
    const { specimen, behaviour, title } = this.data;
    const what = this.graph.edges.length || this.graph.kind === "explanation" ? "edges" : "components";
    const number = (label: string, value: number, max: number, changed: (value: number) => void) => field(label, h("input", { type: "number", min: label === "prompts" ? 1 : 0, max, value, onchange: (event: Event) => { changed(Number((event.target as HTMLInputElement).value)); this.keep(); } }));
    return [
      h("p", { class: "path" }, link(this.path, "result", { path: this.path })),
      h("h1", {}, `${specimen}${behaviour ? `, ${behaviour}` : ""}: ${title}`),
      h("p", { class: "quiet" }, about(this.graph, this.data)),
      h("div", { class: "filters threshold" }, field(`${what} by score, few to all`, this.slider), field("least score", this.exact), this.undo, this.redo, keysSetting()),
      this.status, this.chips,
      h("div", { class: "circuit" }, scrolling(this.stage), this.panel),
      this.gaps,
      h("h2", {}, "Faithfulness"),
      h("p", { class: "quiet" }, "Everything outside the circuit is replaced by its values on other prompts. 0: nothing is left of the behaviour; 1: as with the whole model."),
      h("form", { class: "filters", onsubmit: (event: Event) => { event.preventDefault(); void this.measure(); } },
        number("prompts", this.n, 128, (value) => { this.n = value; }), number("seed", this.seed, 2 ** 31, (value) => { this.seed = value; }),
        this.graph.kind === "explanation" && this.data.n_edges ? h("label", { class: "check" }, h("input", { type: "checkbox", checked: this.paths, onchange: (event: Event) => { this.paths = (event.target as HTMLInputElement).checked; this.keep(); } }), " cut every edge that is not drawn") : null,
        h("button", { type: "submit" }, "Recompute the faithfulness")),
      this.figures,
      ...this.saving(),
    ];
  }

  /** While the slider moves only the edges follow; the boxes settle when it is let go. */
  private slide(): void {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const least = thresholdAt(Number(this.slider.value), this.scores);
      const kept = keptBy(this.graph, { ...this.steps.now, least });
      this.drawing = { ...this.drawing, kept, gaps: { unfed: [], unread: [], apart: [] } };
      this.paint();
      for (const box of this.boxes.querySelectorAll("[data-name]")) box.classList.toggle("out", ![INPUT, LOGITS].includes(box.dataset.name) && !kept.nodes.has(box.dataset.name));
      this.say(kept, least);
    });
  }

  draw(anew = true): void {
    if (!anew) return this.paint();
    const now = this.steps.now;
    const kept = keptBy(this.graph, now);
    const held = [this.panel, this.chips, this.gaps].find((part) => part.contains(document.activeElement));
    const at = held ? [...held.querySelectorAll("button")].indexOf(document.activeElement) : -1;
    this.drawing = { kept, layout: layoutOf(kept), gaps: gapsOf(kept), pin: now.pin, largest: Math.abs(this.scores[0] ?? 0) };
    this.slider.value = String(positionOf(now.least, this.scores));
    this.exact.value = String(now.least);
    this.undo.disabled = !this.steps.undoable;
    this.redo.disabled = !this.steps.redoable;
    this.paint();
    this.drawBoxes();
    this.drawChips();
    this.drawGaps();
    this.choose(this.chosen);
    if (held) (held.querySelectorAll("button")[at] ?? held.querySelector("button") ?? this.undo).focus(); // its button was made anew
    this.say(kept, now.least);
    this.keep();
    for (const row of this.figures.querySelectorAll(".current")) row.classList.replace("current", "earlier");
  }

  private paint(): void {
    const { layout } = this.drawing;
    this.stage.style.setProperty("width", `${layout.width}px`);
    this.stage.style.setProperty("height", `${layout.height}px`);
    this.stage.dataset["drawn"] = drawEdges(this.picture, this.drawing);
    this.stage.dataset["edges"] = String(this.drawing.kept.edges.length);
  }

  private say(kept: Kept, least: number): void {
    const total = this.data.n_edges;
    const sent = this.graph.edges.length;
    const edges = total ? `${kept.edges.length.toLocaleString("en")} of ${total.toLocaleString("en")} edges, ` : "";
    replace(this.status, `${edges}${kept.nodes.size} components; score at least ${+least.toPrecision(4)}${sent < total ? `. The strongest ${sent.toLocaleString("en")} edges are here` : ""}`);
    this.slider.setAttribute("aria-valuetext", `score at least ${+least.toPrecision(4)}, ${kept.edges.length} edges`);
  }

  private keep(): void {
    const { least, pin, prune } = this.steps.now;
    remember("circuit", { path: this.path, least: String(least), pin: [...pin].join(","), prune: [...prune].join(","), n: String(this.n), seed: String(this.seed), paths: this.paths ? "yes" : "" });
  }

  private drawBoxes(): void {
    const { layout } = this.drawing;
    const names = layout.rows.flat();
    const inside = this.boxes.contains(document.activeElement);
    if (!this.focused || !layout.places.has(this.focused)) this.focused = names.find((name) => name !== INPUT) ?? INPUT;
    replace(this.boxes, names.map((name) => this.box(name)));
    if (inside) this.focus(this.focused, true);
  }

  private box(name: string): HTMLElement {
    const at = this.drawing.layout.places.get(name)!;
    const node = this.graph.nodes.find((one) => one.id === name);
    const pinned = this.steps.now.pin.has(name);
    const score = node?.score === null || node?.score === undefined ? "" : `, score ${signed(node.score)}`;
    const said = [shown(name), score, node?.role ? `, ${node.role}` : "", pinned ? ", pinned" : ""].join("");
    const box: HTMLButtonElement = h("button", { type: "button", class: `box${name === INPUT || name === LOGITS ? " end" : ""}${pinned ? " pinned" : ""}`, "data-name": name, title: said, "aria-label": said, "aria-pressed": String(name === this.chosen), tabindex: name === this.focused ? 0 : -1,
      onclick: (event: Event) => { event.stopPropagation(); this.choose(name); },
      onfocus: () => { this.focus(name, false); },
      onmouseenter: () => highlight(this.hot, this.drawing, this.edgesOf(name)), onmouseleave: () => highlight(this.hot, this.drawing, this.chosen === null ? [] : this.edgesOf(this.chosen)),
      onkeydown: (event: KeyboardEvent) => this.boxKey(event, name) }, pinned ? `★ ${shown(name)}` : shown(name));
    box.style.setProperty("left", `${at.x - BOX.width / 2}px`);
    box.style.setProperty("top", `${at.y - BOX.height / 2}px`);
    return box;
  }

  private boxKey(event: KeyboardEvent, name: string): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const own = name !== INPUT && name !== LOGITS;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = neighbour(this.drawing.layout, name, event.key);
      if (next) this.focus(next, true);
    } else if (!singleKeys()) {
      return;
    } else if (own && (event.key === "x" || event.key === "Delete")) {
      event.preventDefault();
      const next = neighbour(this.drawing.layout, name, "ArrowRight") ?? neighbour(this.drawing.layout, name, "ArrowUp");
      this.prune([name]);
      if (next) this.focus(next, true);
    } else if (own && event.key === "p") {
      event.preventDefault();
      this.pin(name);
      this.focus(name, true);
    }
  }

  private focus(name: string, move: boolean): void {
    this.focused = name;
    for (const box of this.boxes.querySelectorAll("[data-name]")) {
      box.setAttribute("tabindex", box.dataset.name === name ? "0" : "-1");
      if (move && box.dataset.name === name) box.focus();
    }
  }

  shortcut(event: KeyboardEvent): void {
    if (!(event.ctrlKey || event.metaKey) || event.target instanceof HTMLInputElement && event.target.type !== "range") return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) this.steps.redo();
    else this.steps.undo();
    this.draw();
  }

  private click(event: MouseEvent): void {
    const corner = this.stage.getBoundingClientRect();
    const edge = edgeAt({ x: event.clientX - corner.left, y: event.clientY - corner.top }, this.drawing);
    this.choose(edge ? edge.id : null);
  }

  private edgesOf(name: string): GraphEdge[] {
    return this.drawing.kept.edges.filter((edge) => edge.from === name || edge.to === name || edge.id === name);
  }

  private pin(name: string): void {
    this.steps.pin(name);
    this.draw();
  }

  private prune(names: string[]): void {
    this.steps.prune(names);
    this.draw();
  }

  /** Whether edges are part of the circuit, or drawn only. */
  private get cuts(): boolean {
    return this.graph.by === "edges";
  }

  private choose(name: string | null): void {
    this.chosen = name;
    for (const box of this.boxes.querySelectorAll("[data-name]")) box.setAttribute("aria-pressed", String(box.dataset.name === name));
    const edges = name === null ? [] : this.edgesOf(name);
    highlight(this.hot, this.drawing, edges);
    if (name === null) return replace(this.panel, h("p", { class: "quiet" }, `Choose a component or an edge. With the keyboard: arrow keys go from one to the next, Enter chooses, P pins, X prunes, Ctrl+Z undoes.`));
    const edge = name.includes("->") ? this.graph.edges.find((one) => one.id === name) : null;
    if (edge) return replace(this.panel, h("h2", {}, `${shown(edge.from)} → ${shown(edge.to)}`), h("p", {}, `score ${signed(edge.score, 4)}${edge.port ? `, by its ${{ q: "queries", k: "keys", v: "values" }[edge.port]}` : ""}`), this.cuts ? this.buttons(edge.id) : null);
    const own = name !== INPUT && name !== LOGITS;
    const node = this.graph.nodes.find((one) => one.id === name);
    const { specimen, behaviour } = this.data;
    replace(this.panel, h("h2", {}, shown(name)),
      node?.role ? h("p", {}, node.role) : null,
      node && node.score !== null ? h("p", {}, `score ${signed(node.score, 4)}`) : null,
      own ? this.buttons(name) : null,
      own ? h("p", {}, link("Look at it", "component", { specimen, behaviour: behaviour ?? "", component: name, path: this.path }), " · ", link("What if it were not there?", "what-if", { specimen, behaviour: behaviour ?? "", components: name, kind: "resample" })) : null,
      edges.length ? this.edgeTable(name, edges) : h("p", { class: "quiet" }, "No edge of it is in the circuit."));
  }

  private buttons(name: string): HTMLElement {
    const { pin, prune } = this.steps.now;
    return h("p", { class: "pair" },
      h("button", { type: "button", "aria-pressed": String(pin.has(name)), onclick: () => this.pin(name) }, pin.has(name) ? "Unpin" : "Pin"),
      prune.has(name) ? h("button", { type: "button", onclick: () => { this.steps.restore(name); this.draw(); } }, "Restore") : h("button", { type: "button", onclick: () => this.prune([name]) }, "Prune"));
  }

  private edgeTable(name: string, edges: GraphEdge[]): HTMLElement {
    const rows = edges.slice(0, LISTED).map((edge) => h("tr", {}, h("th", { scope: "row" }, edge.from === name ? `→ ${shown(edge.to)}` : `${shown(edge.from)} →`, edge.port ? h("span", { class: "quiet" }, edge.port) : null), h("td", { class: "number" }, signed(edge.score)),
      this.cuts ? h("td", {}, h("button", { type: "button", class: "small", "aria-label": `${this.steps.now.pin.has(edge.id) ? "unpin" : "pin"} ${edge.id}`, onclick: () => this.pin(edge.id) }, this.steps.now.pin.has(edge.id) ? "Unpin" : "Pin"), " ", h("button", { type: "button", class: "small", "aria-label": `prune ${edge.id}`, onclick: () => this.prune([edge.id]) }, "Prune")) : null));
    return h("div", { class: "edges" }, scrolling(h("table", { class: "list" }, h("caption", {}, `${edges.length} edges${edges.length > LISTED ? `, the strongest ${LISTED}` : ""}`), h("tbody", {}, rows))));
  }

  private drawChips(): void {
    const { pin, prune } = this.steps.now;
    const chip = (name: string, action: string, act: () => void) => h("button", { type: "button", class: "small chip", "aria-label": `${action} ${name}`, onclick: act }, name, " ×");
    replace(this.chips,
      pin.size ? h("p", {}, "Pinned: ", [...pin].map((name) => [chip(name, "unpin", () => this.pin(name)), " "])) : null,
      prune.size ? h("p", {}, "Pruned: ", [...prune].slice(0, 200).map((name) => [chip(name, "restore", () => { this.steps.restore(name); this.draw(); }), " "])) : null);
  }

  private drawGaps(): void {
    const { unfed, unread, apart } = this.drawing.gaps;
    const few = (names: string[]) => `${names.slice(0, 8).join(", ")}${names.length > 8 ? ` and ${names.length - 8} more` : ""}`;
    if (!this.data.n_edges) return replace(this.gaps, h("p", { class: "note" }, "No edges were measured: what the components read and write to is left open (dotted ends)."));
    replace(this.gaps, unfed.length || unread.length || apart.length ? h("div", { class: "note" },
      unfed.length ? h("p", {}, `Nothing here leads into ${few(unfed)} (dotted end above).`) : null,
      unread.length ? h("p", {}, `Nothing here reads ${few(unread)} (dotted end below).`) : null,
      apart.length ? h("p", {}, `On no path from the tokens to the logits: ${few(apart)}. `, h("button", { type: "button", class: "small", onclick: () => this.prune(this.drawing.gaps.apart) }, "Prune them")) : null)
      : h("p", { class: "quiet" }, "Every component is on a path from the tokens to the logits."));
  }

  private asked(): Record<string, unknown> {
    const { least, pin, prune } = this.steps.now;
    return { path: this.path, least: this.graph.kind === "explanation" && !this.paths ? 0 : least, pin: [...pin], prune: [...prune], ...(this.paths ? { edges: true } : {}) };
  }

  private async measure(): Promise<void> {
    const asked = this.asked();
    const edited = this.steps.now.pin.size + this.steps.now.prune.size > 0;
    await during(this.figures, "Replacing everything outside the circuit …", async (ask) => {
      const own = await ask("faithfulness", { ...asked, n: this.n, seed: this.seed });
      const plain = edited ? await ask("faithfulness", { ...asked, pin: [], prune: [], n: this.n, seed: this.seed }) : null;
      for (const one of this.measured) one.label = "earlier";
      this.measured = [{ label: "this circuit", document: own.document }, ...(plain ? [{ label: "without your pins and prunes", document: plain.document }] : []), ...this.measured.filter((one) => comparable(one.document, own.document))].slice(0, 8);
      return [measuredTable(this.measured), own.command ? [h("p", { class: "quiet" }, "The same on the command line:"), h("pre", {}, own.command)] : h("p", { class: "quiet" }, "Save the circuit below to measure it on the command line.")];
    });
  }

  private saving(): HTMLElement[] {
    const name: HTMLInputElement = h("input", { type: "text", value: this.graph.kind === "explanation" ? "circuit-of-it.json" : "pruned.json", maxlength: 90, spellcheck: "false" });
    const address = () => {
      const asked = this.asked();
      return `/api/circuit/file?${new URLSearchParams({ path: this.path, least: String(asked["least"]), pin: [...this.steps.now.pin].join(","), prune: [...this.steps.now.prune].join(","), ...(this.paths ? { edges: "true" } : {}) })}`;
    };
    const download: HTMLAnchorElement = h("a", { href: "#", download: "pruned.json" }, "Download the circuit file");
    download.addEventListener("click", () => {
      download.href = address();
    });
    download.href = address();
    return [
      h("h2", {}, "Keep it"),
      h("form", { class: "filters", onsubmit: (event: Event) => { event.preventDefault(); void during(this.files, "Writing …", async () => {
        const saved = await post("circuit/save", { ...this.asked(), name: name.value });
        return [h("p", {}, `Written: ${saved.file}`), h("p", { class: "quiet" }, this.graph.kind === "explanation" ? "Measure it:" : "Explain it:"), h("pre", {}, saved.command)];
      }); } }, field("file beside the result", name), h("button", { type: "submit" }, "Save"), download),
      this.files,
    ];
  }
}

function about(graph: Graph, data: any): string {
  const score = data.unit ? ` Scores: ${data.unit}.` : "";
  if (graph.kind === "explanation") return `The circuit are the components that were explained. The edges are those that were measured; on request the rest is cut.${score}`;
  if (graph.by === "components") return `This method scores components; what scores less than the threshold is not in the circuit.${score}`;
  return `Edges that score less than the threshold are not in the circuit, and a component is while one of its edges is. Solid lines help the score, dashed ones hinder it; stars are pinned.${score}`;
}

/** Whether two figures may stand in one table: they are of the same prompts. */
export function comparable(one: any, other: any): boolean {
  return one.request.seed === other.request.seed && one.faithfulness.n === other.faithfulness.n;
}

export function measuredTable(measured: Measured[]): HTMLElement {
  const row = (label: string, kind: string, one: any, value: any, controls: Record<string, number | null>) => h("tr", { class: kind },
    h("th", { scope: "row" }, label), h("td", { class: "number" }, `${one.size.toLocaleString("en")} of ${one.candidates.toLocaleString("en")} ${one.by}`), h("td", { class: "number", "data-value": value.value }, figure(value)), h("td", {}, strip({ ...value, experiment: "", measure: "", controls, rule: "", passed: null })));
  return scrolling(h("table", { class: "list measured" }, h("caption", {}, `${measured[0]!.document.unit}, n ${measured[0]!.document.faithfulness.n}, seed ${measured[0]!.document.request.seed}${measured[0]!.document.heads_only ? "; MLPs are kept throughout" : ""}. Dashed: random circuits of the same size`),
    h("thead", {}, h("tr", {}, ["circuit", "size", "faithfulness", ""].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, measured.flatMap(({ label, document }, place) => [row(label, place === 0 ? "current" : "earlier", document, document.faithfulness, { random: document.random.value }), place === 0 ? row(`${document.random_circuits} random ones of its size`, "random", document, document.random, {}) : null]))));
}
