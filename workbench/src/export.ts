/**
 * Any view as one file that needs nothing else: what the page shows, its style sheet, and a policy that forbids the rest.
 *
 * 1. The view is copied as it stands, with the values that were typed and chosen.
 * 2. What would run, load or lead elsewhere is taken out; controls stay as they look, and do nothing.
 * 3. Style sheet and the script of the light-or-dark button come from the server; the policy names that script alone.
 */

import { get } from "./ask";
import { h } from "./dom";
import type { Address } from "./address";

export interface Shell {
  style: string;
  script: string;
  script_hash: string;
  version: string;
}

const DROPPED = "script, style, link, meta, base, iframe, object, embed, template, noscript, audio, video, [download], form button, button:not([class], [aria-pressed], table button), .not-saved";
const LOADING = ["src", "srcset", "href", "xlink:href", "action", "formaction", "data", "poster", "ping", "background", "target"];

/** A name for the file: the view and what it is about, in letters that every file system takes. */
export function fileName({ view, query }: Address): string {
  const about = [view, query["specimen"] ?? query["path"] ?? "", query["behaviour"] ?? "", query["component"] ?? query["components"] ?? ""];
  const words = about.map((one) => one.replace(/[^A-Za-z0-9_+-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40)).filter(Boolean);
  return `vesalius-${words.join("-")}.html`;
}

/** A copy of the view that holds what its controls say and nothing that runs, loads or leads elsewhere. */
export function frozen(view: Element): Element {
  const copy = view.cloneNode(true) as Element;
  copy.classList.add("saved-view");
  const [from, to] = [view, copy].map((one) => [one, ...one.querySelectorAll("*")]) as [Element[], Element[]];
  from.forEach((element, at) => fix(element, to[at]!));
  for (const element of copy.querySelectorAll(DROPPED)) element.remove();
  for (const element of [copy, ...copy.querySelectorAll("*")]) harmless(element);
  return copy;
}

/** What a copy of an element does not have of itself: what was typed, chosen or drawn. */
function fix(element: Element, copy: Element): void {
  if (element instanceof HTMLCanvasElement) {
    const label = element.getAttribute("aria-label") ?? "";
    const image = h("img", { src: element.toDataURL("image/png"), class: element.getAttribute("class"), width: element.clientWidth || element.width, height: element.clientHeight || element.height, alt: label });
    copy.replaceWith(image);
  } else if (element instanceof HTMLInputElement) {
    copy.setAttribute("value", element.value);
    copy.toggleAttribute("checked", element.checked);
  } else if (element instanceof HTMLTextAreaElement) {
    copy.textContent = element.value;
  } else if (element instanceof HTMLOptionElement) {
    copy.toggleAttribute("selected", element.selected);
  }
}

function harmless(element: Element): void {
  for (const { name, value } of [...element.attributes]) {
    const inside = name.endsWith("href") && value.startsWith("#");
    const picture = name === "src" && element.tagName === "IMG" && value.startsWith("data:image/");
    if (name.startsWith("on") || (LOADING.includes(name) && !inside && !picture)) element.removeAttribute(name);
  }
  if (/^(BUTTON|INPUT|SELECT|TEXTAREA)$/.test(element.tagName)) element.setAttribute("disabled", "");
}

/** The whole file. `scheme` is the one that pictures were drawn in; without pictures the reader's own is used. */
export function page(view: Element, shell: Shell, title: string, scheme: string | null): string {
  const named = document.createElement("title"); // `h` makes the title of a drawing
  named.textContent = title;
  const policy = `default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src ${scheme ? "'none'" : `'sha256-${shell.script_hash}'`}; base-uri 'none'; form-action 'none'`;
  const head = [
    h("meta", { charset: "utf-8" }),
    h("meta", { "http-equiv": "Content-Security-Policy", content: policy }),
    h("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }),
    h("meta", { name: "generator", content: `vesalius ${shell.version}` }),
    named,
  ];
  const bar = h("header", { class: "bar" }, h("strong", {}, "Vesalius"), h("span", { class: "space" }), scheme ? null : h("button", { type: "button", id: "theme", hidden: true }, "Light or dark"));
  const foot = h("footer", { class: "quiet saved" }, `Saved from vesalius ${shell.version}. This file holds everything it shows and fetches nothing.`);
  const text = (parts: Element[]) => parts.map((one) => one.outerHTML).join("\n");
  // The two parts that are ours and not text: as elements of this page they would run into its own policy.
  return `<!doctype html>
<html lang="en"${scheme ? ` data-theme="${scheme}"` : ""}>
<head>
${text(head)}
<style>
${shell.style}</style>
</head>
<body>
${text([bar, view, foot])}
${scheme ? "" : `<script>${shell.script}</script>`}
</body>
</html>
`;
}

/** Waits until the view shows answers, then hands the file to the browser as a download. */
export async function save(view: Element, address: Address, scheme: string): Promise<void> {
  for (let tries = 0; view.querySelector(".waiting") && tries < 300; tries++) await new Promise((done) => setTimeout(done, 100));
  const shell: Shell = await get("shell");
  const title = view.querySelector("h1")?.textContent || document.title;
  const text = page(frozen(view), shell, title, view.querySelector("canvas") ? scheme : null);
  const place = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  h("a", { href: place, download: fileName(address) }).click();
  setTimeout(() => URL.revokeObjectURL(place), 10_000);
}
