/** Questions that take long: how far they are, and a button that cancels them. */

import { get, post } from "./ask";
import { h, replace } from "./dom";
import { duration, whole } from "./numbers";

export interface Progress {
  waiting: boolean;
  step: string;
  done: number;
  total: number;
  seconds: number;
}

/** Milliseconds until a question is called long, and between looks at how far it is. */
const LONG_AFTER = 700;
const LOOK_EVERY = 500;

/** How far a question is, in words. */
export function words(progress: Progress): string {
  const time = duration(progress.seconds);
  if (progress.waiting) return `waiting for other questions, ${time}`;
  const count = progress.total > 1 ? ` ${whole(progress.done)} of ${whole(progress.total)}` : "";
  return `${progress.step ? `${progress.step}${count}, ` : ""}${time}`;
}

function newName(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
}

/** The questions of one piece of work, asked one after the other. What is shown goes into `place`. */
export class Work {
  readonly place = h("div", { class: "work" });
  private name = "";
  private ended = false;

  /** Ends the question that is under way, if there is one. */
  cancel(): void {
    this.ended = true;
    if (this.name) void post("work/cancel", { name: this.name }).catch(() => undefined);
  }

  async ask(path: string, body: unknown): Promise<any> {
    if (this.ended) throw new Error("Cancelled.");
    this.name = newName();
    const timer = setTimeout(() => void this.watch(this.name), LONG_AFTER);
    try {
      return await post(path, body, this.name);
    } catch (error) {
      throw this.ended ? new Error("Cancelled.") : error;
    } finally {
      clearTimeout(timer);
      this.name = "";
      replace(this.place);
    }
  }

  private async watch(name: string): Promise<void> {
    const bar: HTMLProgressElement = h("progress", { "aria-label": "how far it is" });
    const said = h("span", { class: "quiet" });
    const button: HTMLButtonElement = h("button", { type: "button", class: "small", onclick: () => { button.disabled = true; this.cancel(); } }, "Cancel");
    replace(this.place, bar, said, button);
    while (this.name === name) {
      if (!this.place.isConnected) return this.cancel(); // the view was left, or asks something else by now
      try {
        const { work } = await get("work", { name });
        if (work && this.name === name) {
          if (work.total > 1) { bar.max = work.total; bar.value = work.done; } else bar.removeAttribute("value");
          said.textContent = this.ended ? "ending …" : words(work);
        }
      } catch {
        // the answer itself says what went wrong
      }
      await new Promise((done) => setTimeout(done, LOOK_EVERY));
    }
  }
}
