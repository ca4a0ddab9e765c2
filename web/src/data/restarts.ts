// Settings that were changed and take effect only after a restart. Reloads report them; a restart settles them.

import { signal } from "@preact/signals";
import { store, stored } from "../base/storage.ts";
import { onEvent } from "../live/client.ts";

export interface Restart {
  at: string;
  settings: string[];
}

function load(): Restart | null {
  try {
    const value = JSON.parse(stored("restart") ?? "null") as Restart | null;
    return value && Array.isArray(value.settings) && typeof value.at === "string" ? value : null;
  } catch {
    return null;
  }
}

/** What the last reload left waiting, as far as this browser has seen it. */
export const waitingRestart = signal<Restart | null>(load());

/** Takes the events. To be called once. */
export function watchRestarts(): void {
  onEvent((event) => {
    if (event.event !== "config.reloaded") return;
    const settings = Array.isArray(event.needsRestart) ? event.needsRestart.filter((name) => typeof name === "string") : [];
    waitingRestart.value = settings.length > 0 ? { at: event.timestamp, settings } : null;
    store("restart", waitingRestart.value && JSON.stringify(waitingRestart.value));
  });
}
