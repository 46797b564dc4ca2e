/** Elements without a framework: text is always text, so nothing from a result can become markup. */

export type Child = Node | string | number | null | undefined | false | Child[];
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: any) => void)>;

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "line", "path", "circle", "text", "title", "polygon"]);

export function h(tag: string, attributes: Attributes = {}, ...children: Child[]): any {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

function append(parent: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) parent.appendChild(document.createTextNode(String(child)));
  }
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** A labelled control of a form. */
export function field(label: string, control: HTMLElement): HTMLElement {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

export function select(options: string[], chosen: string, changed: (value: string) => void): HTMLSelectElement {
  const element: HTMLSelectElement = h("select", { onchange: () => changed(element.value) }, options.map((one) => h("option", { value: one, selected: one === chosen }, one)));
  return element;
}

/** What may be wider than the page: it scrolls by itself, and by keyboard. */
export function scrolling(child: Child): HTMLElement {
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "scrolls sideways" }, child);
}
