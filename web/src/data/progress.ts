// What running calls report. Kept by call, because a report may come before the answer that names the call.

import { useEffect, useState } from "preact/hooks";
import type { HubEvent } from "../api/types.ts";
import { onEvent } from "../live/client.ts";

export interface Progress {
  message: string;
  /** From 0 to 1; undefined if the tool does not know it. */
  fraction: number | undefined;
}

const maxCalls = 50;

/** The last report of each call that reported something while the component is shown. */
export function useProgress(): ReadonlyMap<string, Progress> {
  const [all, set] = useState<ReadonlyMap<string, Progress>>(new Map());
  useEffect(() => onEvent((event) => event.event === "call.progress" && set((before) => new Map([...before, [String(event.callId), progressOf(event)] as const].slice(-maxCalls)))), []);
  return all;
}

function progressOf({ message, fraction, done, total }: HubEvent): Progress {
  const share = typeof done === "number" && typeof total === "number" && total > 0 ? done / total : undefined;
  return { message: typeof message === "string" ? message : "", fraction: typeof fraction === "number" ? fraction : share };
}
