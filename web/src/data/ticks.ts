// What the server counts every second: the last minute of it.

import { signal } from "@preact/signals";
import type { HubEvent } from "../api/types.ts";
import { now, serverNow } from "../base/clock.ts";
import { connection, onEvent } from "../live/client.ts";
import { isOld, type Snapshot } from "./resource.ts";

export interface Tick {
  /** Ended calls of the second, failed ones included. */
  calls: number;
  errors: number;
  /** Of the last minute; null without calls. */
  p95Ms: number | null;
  inFlight: number;
  queued: number;
}

const maxTicks = 60;

/** Oldest first; null for a second without a report. */
export const ticks = signal<readonly (Tick | null)[]>([]);
export const lastTick = signal<Snapshot<Tick> | null>(null);

/** Reports come once a second; after three that are missing the last one does not say what holds now. */
const freshMs = 4_000;
/** When the last one arrived, by this machine's clock. */
let heardAt = 0;

export function isTickOld(): boolean {
  void now.value;
  return isOld(lastTick.value) || (lastTick.value !== null && Date.now() - heardAt > freshMs);
}

const numberOf = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);

/** Reads an event, whatever members it lacks. */
export function readTick(event: HubEvent): Tick {
  const byOutcome = typeof event.calls === "object" && event.calls !== null ? Object.entries(event.calls) : [];
  const calls = byOutcome.reduce((sum, [, count]) => sum + numberOf(count), 0);
  const errors = byOutcome.reduce((sum, [outcome, count]) => sum + (outcome === "success" || outcome === "cancelled" ? 0 : numberOf(count)), 0);
  return {
    calls,
    errors,
    p95Ms: typeof event.p95MinuteMs === "number" ? event.p95MinuteMs : null,
    inFlight: numberOf(event.inFlight),
    queued: numberOf(event.queued),
  };
}

/** Takes the events. To be called once. */
export function watchTicks(): void {
  onEvent((event) => {
    if (event.event !== "metrics.tick") return;
    const current = connection.peek();
    const tick = readTick(event);
    // Seconds in which nothing came are a gap in the lines, not a level.
    const seconds = lastTick.peek() ? Math.round((serverNow() - (lastTick.peek()?.at ?? 0)) / 1000) : 1;
    const gap = Array.from({ length: Math.min(maxTicks, Math.max(0, seconds - 2)) }, () => null);
    ticks.value = [...ticks.peek(), ...gap, tick].slice(-maxTicks);
    heardAt = Date.now();
    lastTick.value = { value: tick, at: serverNow(), epoch: current.state === "live" ? current.epoch : 0 };
  });
}
