// Settings that were changed and take effect only after a restart. Reloads report them; a restart settles them.

import { computed, signal } from "@preact/signals";
import { store, stored } from "../base/storage.ts";
import { onEvent } from "../live/client.ts";
import { nodes } from "./facts.ts";

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
const waiting = signal<Restart | null>(load());

/** What still waits: this process runs since before the reload. Up to date where `nodes` is. */
export const pendingRestart = computed(() => {
  const self = nodes.data.value?.value.find(({ isSelf }) => isSelf);
  const restart = waiting.value;
  return restart && (!self || Date.parse(self.startedAt) < Date.parse(restart.at)) ? restart : null;
});

/** Notes what a reload reported. */
export function noteReload(at: string, settings: string[]): void {
  waiting.value = settings.length > 0 ? { at, settings } : null;
  store("restart", waiting.value && JSON.stringify(waiting.value));
}

/** Takes the events. To be called once. */
export function watchRestarts(): void {
  onEvent((event) => {
    if (event.event !== "config.reloaded") return;
    noteReload(event.timestamp, Array.isArray(event.needsRestart) ? event.needsRestart.filter((name) => typeof name === "string") : []);
  });
}
