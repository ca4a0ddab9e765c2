// Calls of one node over time, as lists of numbers for charts.

import { get, withQuery } from "../api/client.ts";
import type { CallSeries } from "../api/types.ts";
import { Resource } from "./resource.ts";

export const windows = ["15m", "6h", "24h"] as const;
export type Window = (typeof windows)[number];

const lengths: Record<Window, number> = { "15m": 900_000, "6h": 21_600_000, "24h": 86_400_000 };
const readEvery: Record<Window, number> = { "15m": 5_000, "6h": 10_000, "24h": 60_000 };

/** The series of all tools, or of one. */
export const seriesOf = (tool: string, window: Window): Resource<CallSeries> =>
  new Resource(() => get<CallSeries>(withQuery("/api/v1/series", { window, tool })), { everyMs: readEvery[window] });

export type Counts = "succeeded" | "failed" | "cancelled" | "refused" | "cacheHits";
export type Values = Counts | "p50Ms" | "p95Ms" | "p99Ms" | "inFlight" | "queued";

const counts: readonly Values[] = ["succeeded", "failed", "cancelled", "refused", "cacheHits"];

/** A chart is some hundred pixels wide, so several points of the server are one of the chart. */
const chartSteps: Record<Window, number> = { "15m": 5_000, "6h": 60_000, "24h": 300_000 };

export interface Lines {
  /** Times in milliseconds, one per step of the whole window. */
  at: number[];
  /** A value per time; null where nothing is known. Numbers of calls are the mean per `perMs`; others are the highest of the step. */
  of: (name: Values) => (number | null)[];
}

/**
 * The series over its whole window, so that every chart has the same time axis.
 *
 * A missing point is a gap: the server did not run. In the series of one tool it is a time without calls, `isTool`.
 * The last step is not over: its mean is that of the time so far, for a tool of a whole `perMs` at least.
 */
export function linesOf(series: CallSeries, isTool: boolean, perMs: number): Lines {
  const step = Math.max(series.stepMs, chartSteps[series.window]);
  const now = Date.parse(series.now);
  const end = (Math.floor(now / step) + 1) * step;
  const steps = lengths[series.window] / step;
  const begin = end - steps * step;
  const at = Array.from({ length: steps }, (_, index) => begin + index * step);
  const of = (name: Values): (number | null)[] => {
    const isCount = counts.includes(name);
    const result: (number | null)[] = at.map(() => (isTool && !name.endsWith("Ms") ? 0 : null));
    const known = at.map(() => 0);
    series.at.forEach((time, index) => {
      const slot = Math.floor((time - begin) / step);
      const value = series[name][index] ?? null;
      if (value === null || slot < 0 || slot >= steps) return;
      // A point whose time is not over counts too little; the next reading has all of it.
      if (!isTool && time + series.stepMs > now) return;
      const before = result[slot] ?? 0;
      result[slot] = isCount ? before + value : Math.max(before, value);
      known[slot] = (known[slot] ?? 0) + 1;
    });
    if (!isCount) return result;
    // Seconds in which the server did not run do not lower the mean.
    const time = (slot: number) => (isTool ? Math.max(perMs, Math.min(step, now - begin - slot * step)) : (known[slot] ?? 1) * series.stepMs);
    return result.map((sum, slot) => sum && (sum * perMs) / time(slot));
  };
  return { at, of };
}

export const highestOf = (values: readonly (number | null)[]): number => values.reduce<number>((highest, value) => Math.max(highest, value ?? 0), 0);
