// Runs of agents: the list of them, one with its calls, and its events while it is looked at.

import { get, post, segment, withQuery } from "../api/client.ts";
import type { Agent, Call, HubEvent, Page, Run, RunStatus } from "../api/types.ts";
import { now } from "../base/clock.ts";
import { base } from "../base/page.ts";
import { SseParser } from "../base/sse.ts";
import { hasEnded } from "./calls.ts";
import { PagedResource } from "./paged.ts";
import { Resource } from "./resource.ts";

export const isOpen = (run: Run): boolean => run.status === "running" || run.status === "waiting";

/** Which runs a list shows: all, those that have not ended, or those with a status. */
export const runFilters = ["", "open", "failed", "completed", "cancelled"] as const satisfies ("" | "open" | RunStatus)[];
export type RunFilter = (typeof runFilters)[number];

/** The newest runs that the filter selects, of all threads or of one. */
export const newestRuns = (threadId: string, status: RunFilter): PagedResource<Run> =>
  new PagedResource((limit, cursor) => get(withQuery(threadId ? `/api/v1/threads/${segment(threadId)}/runs` : "/api/v1/runs", { status, limit, cursor })), {
    changes: ({ event }) => /^(run|approval)\./.test(event),
    everyMs: 10_000,
  });

export interface RunView {
  run: Run;
  /** The records of its calls by id; a call whose record is gone is missing. */
  calls: ReadonlyMap<string, Call>;
}

/** One run with its calls. Calls that have ended do not change, so they are not read again. */
export function runOf(id: string): Resource<RunView> {
  const known = new Map<string, Call>();
  const readCalls = async (run: Run): Promise<void> => {
    let cursor: string | null | undefined = null;
    do {
      const page: Page<Call> = await get(withQuery("/api/v1/calls", { runId: id, view: "short", limit: 500, cursor }));
      const isKnown = page.items.length > 0 && page.items.every((call) => known.has(call.id) && hasEnded(known.get(call.id)!));
      for (const call of page.items) known.set(call.id, call);
      cursor = isKnown ? null : page.nextCursor;
    } while (cursor && known.size < run.calls.length + 500);
  };
  const resource: Resource<RunView> = new Resource(
    async () => {
      const run = await get<Run>(`/api/v1/runs/${segment(id)}`, { exact: ["arguments"] });
      await readCalls(run);
      return { run, calls: new Map(known) };
    },
    {
      changes: (event) => {
        const run = resource.data.peek()?.value.run;
        return event.runId === id || (run !== undefined && isOpen(run) && event.event === "metrics.tick");
      },
    },
  );
  return resource;
}

export const cancelRun = (id: string): Promise<unknown> => post(`/api/v1/runs/${segment(id)}/cancel`);

/** Reports the result of a call that is executed outside. */
export const reportResult = (call: string, result: { output: unknown } | { error: string }): Promise<unknown> => post(`/api/v1/calls/${segment(call)}/result`, result);

/** How long a run took, or goes on. */
export const runMs = (run: Run): number => Math.max(0, (run.endedAt ? Date.parse(run.endedAt) : now.value) - Date.parse(run.startedAt));

export const agentOf = (list: readonly Agent[], name: string): Agent | undefined => list.find((agent) => agent.name === name);

/**
 * Follows the events of a run from now on, until the returned function is called. A connection that ends is opened again after a second;
 * `begin` is called for each one, because nothing says what was missed in between.
 */
export function followRun(id: string, begin: () => void, take: (event: HubEvent) => void): () => void {
  const abort = new AbortController();
  const follow = async () => {
    const response = await fetch(`${base}/api/v1/runs/${segment(id)}/events`, { headers: { accept: "text/event-stream" }, signal: abort.signal, credentials: "same-origin", cache: "no-store" });
    if (!response.ok || !response.body) return;
    const [parser, decoder, reader] = [new SseParser(), new TextDecoder(), response.body.getReader()];
    begin();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const { data } of parser.feed(decoder.decode(value, { stream: true }))) take(JSON.parse(data) as HubEvent);
    }
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  const repeat = () => void follow().catch(() => undefined).finally(() => abort.signal.aborted || (timer = setTimeout(repeat, 1_000)));
  repeat();
  return () => (abort.abort(), clearTimeout(timer));
}
