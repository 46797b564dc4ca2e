/**
 * The notebook widget: a head map, attention or the graph of a circuit, drawn by the parts of the workbench.
 *
 * It lives in a shadow tree, so that its style sheet does not touch the notebook's. What it shows is the trait `shown`;
 * components that the reader chooses on a map come back as `chosen`.
 */

import { field, h, replace, scrolling } from "./dom";
import { attentionView, type HeadPattern } from "./parts/attention";
import { edgeOf, gapsOf, INPUT, keptBy, LOGITS, positionOf, SLIDER, thresholdAt, type Graph, type GraphEdge } from "./parts/circuit";
import { BOX, drawEdges, highlight, layoutOf, neighbour } from "./parts/graph";
import { redraw } from "./parts/headmap";
import parts from "../../src/vesalius/report/templates/parts.css";
import style from "./style.css";

export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, changed: () => void): void;
  off(event: string, changed: () => void): void;
}
interface Shown {
  kind: string;
  title: string;
  [name: string]: any;
}

/** The style sheet of the page as that of a shadow tree: its root is the element that holds the tree. */
export function scoped(text: string): string {
  return text
    .replace(/:root:not\((\[[^)]*\])\)/g, ":host(:not($1))")
    .replace(/:root(\[[^\]]*\])/g, ":host($1)")
    .replace(/:root\b/g, ":host")
    .replace(/^body \{/m, ".page {");
}

/** Light or dark, as the notebook is; undefined where it does not say, and the reader's own setting holds. */
function scheme(): string | undefined {
  const { jpThemeLight } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "true" ? "light" : "dark";
  if (document.body.classList.contains("vscode-dark")) return "dark";
  return document.body.classList.contains("vscode-light") ? "light" : undefined;
}

const DRAW: Record<string, (place: Element, shown: Shown, model: Model) => void> = {
  headmap(place, shown, model) {
    const chosen = new Set<string>(model.get("chosen"));
    const draw = () => redraw(place, { layers: shown["layers"], heads: shown["heads"], values: new Map(Object.entries(shown["values"])), chosen, marked: new Set(shown["marked"]), unclear: new Set(shown["unclear"]), unit: shown["unit"], pick: (component) => {
      chosen.has(component) ? chosen.delete(component) : chosen.add(component);
      model.set("chosen", [...chosen]);
      model.save_changes();
      draw();
    } });
    draw();
  },
  graph(place, shown, model) {
    const edges: GraphEdge[] = shown["edges"].map(([id, score]: [string, number]) => edgeOf(id, score)).filter((edge: GraphEdge | null) => edge !== null);
    const graph: Graph = { kind: "discovery", by: "edges", nodes: [], edges };
    const scores = edges.map((edge) => edge.score);
    const slider: HTMLInputElement = h("input", { type: "range", min: 0, max: SLIDER, oninput: () => draw() });
    const before = place.querySelector<HTMLInputElement>("input[type=range]");
    slider.value = before?.value ?? String(positionOf(Math.abs(scores[Math.min(shown["first"], scores.length) - 1] ?? 0), scores));
    const status = h("p", { class: "quiet", role: "status" });
    const stage = h("div", { class: "stage" });
    let again = null as HTMLElement | null; // the box that had the keyboard before everything was drawn anew
    const draw = () => {
      const least = thresholdAt(Number(slider.value), scores);
      const kept = keptBy(graph, { least, pin: new Set(), prune: new Set() });
      const drawing = { kept, layout: layoutOf(kept), gaps: gapsOf(kept), pin: new Set<string>(), largest: Math.abs(scores[0] ?? 0) };
      const picture = h("div", { class: "picture" });
      const hot = h("div", { class: "picture hot-layer" });
      drawEdges(picture, drawing);
      const names = drawing.layout.rows.flat();
      const boxes: HTMLElement[] = names.map((name, at) => {
        const end = name === INPUT || name === LOGITS;
        const own = kept.edges.filter((edge) => edge.from === name || edge.to === name);
        const box = h("button", { type: "button", class: `box${end ? " end" : ""}`, "data-name": name, tabindex: at === 0 ? 0 : -1, "aria-pressed": String(model.get("chosen").includes(name)),
          onmouseenter: () => highlight(hot, drawing, own), onmouseleave: () => replace(hot), onfocus: () => highlight(hot, drawing, own), onblur: () => replace(hot),
          onclick: () => { if (!end) { const chosen: string[] = model.get("chosen"); model.set("chosen", chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]); model.save_changes(); } },
          onkeydown: (event: KeyboardEvent) => {
            const next = neighbour(drawing.layout, name, event.key);
            if (!next) return;
            event.preventDefault();
            const other = boxes[names.indexOf(next)]!;
            box.tabIndex = -1;
            other.tabIndex = 0;
            other.focus();
          } }, name === INPUT ? "tokens" : name);
        const { x, y } = drawing.layout.places.get(name)!;
        box.style.setProperty("left", `${x - BOX.width / 2}px`);
        box.style.setProperty("top", `${y - BOX.height / 2}px`);
        return box;
      });
      const focused = (place.getRootNode() as ShadowRoot | Document).activeElement?.getAttribute("data-name");
      stage.style.setProperty("width", `${drawing.layout.width}px`);
      stage.style.setProperty("height", `${drawing.layout.height}px`);
      replace(stage, picture, hot, boxes);
      again = focused ? boxes[names.indexOf(focused)] ?? null : null;
      replace(status, `${kept.edges.length} of ${shown["total"]} edges, ${kept.nodes.size} components; score at least ${+least.toPrecision(3)}`);
    };
    draw();
    replace(place, field("edges by score, few to all", slider), status, scrolling(stage));
    if (again) { for (const box of stage.querySelectorAll(".box")) box.setAttribute("tabindex", box === again ? "0" : "-1"); again.focus(); }
  },
  attention(place, shown) {
    replace(place, attentionView(shown["tokens"] as string[], shown["heads"] as HeadPattern[], null));
  },
};

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const host = h("div", { "data-theme": scheme() });
  const tree: ShadowRoot = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(scoped(parts + style));
  tree.adoptedStyleSheets = [sheet];
  const place = h("div", {});
  const title = h("p", { class: "quiet" });
  tree.append(h("div", { class: "page" }, title, place));
  const draw = () => {
    const shown: Shown = model.get("shown");
    replace(title, shown.title);
    DRAW[shown.kind]?.(place, shown, model);
  };
  draw();
  el.append(host);
  const events = ["change:shown", "change:chosen"];
  for (const event of events) model.on(event, draw);
  return () => { for (const event of events) model.off(event, draw); };
}

export default { render };
