/**
 * The notebook widget: a head map or attention, drawn by the parts of the workbench.
 *
 * It lives in a shadow tree, so that its style sheet does not touch the notebook's. What it shows is the trait `shown`;
 * components that the reader chooses on a map come back as `chosen`.
 */

import { h, replace } from "./dom";
import { attentionView, type HeadPattern } from "./parts/attention";
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
    const draw = () => redraw(place, { layers: shown["layers"], heads: shown["heads"], values: new Map(Object.entries(shown["values"])), chosen, marked: new Set(shown["marked"]), pick: (component) => {
      chosen.has(component) ? chosen.delete(component) : chosen.add(component);
      model.set("chosen", [...chosen]);
      model.save_changes();
      draw();
    } });
    draw();
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
  for (const name of ["shown", "chosen"]) model.on(`change:${name}`, draw);
  el.append(host);
  return () => { for (const name of ["shown", "chosen"]) model.off(`change:${name}`, draw); };
}

export default { render };
