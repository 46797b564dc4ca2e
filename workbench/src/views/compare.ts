/** Two results side by side, as `vesalius diff` says it. */

import { get } from "../ask";
import { h } from "../dom";
import { during, link } from "../page";
import { viewOf } from "../parts/sections";
import type { Query } from "../address";

export function compare(place: Element, query: Query): void {
  const { a = "", b = "" } = query;
  if (!a || !b) {
    void during(place, "", async () => [h("h1", {}, "Compare"), h("p", {}, "Choose two results of the same kind in the list of ", link("results", "runs"), ".")]);
    return;
  }
  void during(place, "Comparing …", async () => {
    const { view } = await get("diff", { a, b });
    return [h("h1", {}, view.title), h("p", { class: "ways" }, "A: ", link(a, "result", { path: a }), " · B: ", link(b, "result", { path: b })), viewOf(view)];
  });
}
