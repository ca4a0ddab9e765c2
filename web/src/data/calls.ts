// Records of calls: which ones a list asks for, the newest of them as they come, and one call.

import { get, post, segment, withQuery } from "../api/client.ts";
import type { Call, CallStatus, ErrorKind, HubEvent, Page, Refusal } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { PagedResource } from "./paged.ts";
import { Resource } from "./resource.ts";

/** What the address of the list says; each empty one selects nothing. */
export interface CallFilter {
  tool: string;
  thread: string;
  run: string;
  caller: string;
  status: string;
  code: string;
  /** Such as `500ms`: only calls that took longer. */
  slower: string;
  /** A moment as RFC 3339, or how long ago, such as `15m`. */
  since: string;
  until: string;
}

const emptyFilter: CallFilter = { tool: "", thread: "", run: "", caller: "", status: "", code: "", slower: "", since: "", until: "" };
export const filterNames = Object.keys(emptyFilter) as (keyof CallFilter)[];

export const readCallFilter = (query: URLSearchParams): CallFilter => ({
  ...emptyFilter,
  ...Object.fromEntries(filterNames.map((name) => [name, query.get(name)?.trim() ?? ""])),
});

export const isFiltered = (filter: CallFilter): boolean => filterNames.some((name) => filter[name] !== "");

/** The filter as a query of the page, for links that lead back to the list. */
export const filterQuery = (filter: CallFilter): string => new URLSearchParams(filterNames.filter((name) => filter[name]).map((name) => [name, filter[name]])).toString();

export const spans = { "15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000 } as const;
export type Span = keyof typeof spans;
export const isSpan = (text: string): text is Span => Object.hasOwn(spans, text);

export const callStatuses: readonly CallStatus[] = ["executing", "awaiting_approval", "success", "error", "cancelled"];
export const slowest = ["100ms", "500ms", "1s", "5s", "30s"] as const;

/** The request of a page of calls that match the filter, without arguments and outputs. */
export function callsPath(filter: CallFilter, limit: number, cursor: string | null = null): string {
  const since = isSpan(filter.since) ? new Date(serverNow() - spans[filter.since]).toISOString() : filter.since;
  const { tool, caller, status, code, until } = filter;
  return withQuery("/api/v1/calls", { tool, caller, status, code, since, until, threadId: filter.thread, runId: filter.run, slowerThan: filter.slower, view: "short", limit, cursor });
}

/** Whether a report of a second says that calls began, run or ended on this node. */
export function reportsCalls(event: HubEvent): boolean {
  if (event.event !== "metrics.tick") return false;
  const some = (counts: unknown) => typeof counts === "object" && counts !== null && Object.keys(counts).length > 0;
  return some(event.calls) || some(event.refusals) || Number(event.inFlight) > 0 || Number(event.queued) > 0;
}

export const headSize = 100;

/** The newest calls of a filter, read again every second in which something is called, and now and then for what other nodes do. */
export const newestCalls = (filter: CallFilter): Resource<Page<Call>> =>
  new Resource(() => get<Page<Call>>(callsPath(filter, headSize)), { changes: (event) => reportsCalls(event) || event.event.startsWith("approval."), everyMs: 5_000 });

/** Calls as they were when the list was paused, and older ones that were asked for since. */
export interface Paused {
  items: Call[];
  next: string | null;
  at: number;
}

/** How many of the newest calls came after those that are shown. */
export function countNew(shown: readonly Call[], newest: readonly Call[]): number {
  const known = new Set(shown.map(({ id }) => id));
  const at = newest.findIndex(({ id }) => known.has(id));
  return at < 0 ? newest.length : at;
}

/** Adds the next older calls. A search may answer with few or none at a time, so it goes on for a while. */
export async function withOlder(filter: CallFilter, paused: Paused): Promise<Paused> {
  let { items, next } = paused;
  const enough = items.length + headSize / 2;
  for (let page = 0; page < 5 && next && items.length < enough; page++) {
    const answer: Page<Call> = await get(callsPath(filter, headSize, next));
    items = [...items, ...answer.items];
    next = answer.nextCursor ?? null;
  }
  return { ...paused, items, next };
}

const terminal: readonly CallStatus[] = ["success", "error", "cancelled"];
export const hasEnded = (call: Call): boolean => terminal.includes(call.status);

/** One call with its arguments and result; read again until it has ended. */
export function callOf(id: string): Resource<Call> {
  const resource: Resource<Call> = new Resource(() => get<Call>(`/api/v1/calls/${segment(id)}`, { exact: ["arguments", "output"] }), {
    changes: (event) => {
      const call = resource.data.peek()?.value;
      return call !== undefined && !hasEnded(call) && (event.event === "metrics.tick" || event.event.startsWith("approval."));
    },
  });
  return resource;
}

/** Starts a call and answers with its id at once: its page or form follows it, and may cancel it. The record then has its output. */
export const startCall = (tool: string, args: unknown, threadId: string, key = ""): Promise<Call> =>
  post(`/api/v1/tools/${segment(tool)}/calls`, { arguments: args, ...(threadId && { threadId }) }, { prefer: "respond-async", ...(key && { "idempotency-key": key }) });

export const cancelCall = (id: string): Promise<unknown> => post(`/api/v1/calls/${segment(id)}/cancel`);

export type RefusalRow = Refusal & { id: string };

/** The newest refused calls; they are not records but a memory of this process. */
export const refusalsOf = ({ tool, thread, caller, code }: Pick<CallFilter, "tool" | "thread" | "caller" | "code">): PagedResource<RefusalRow> =>
  new PagedResource(
    async (limit, cursor) => {
      const page = await get<Page<Refusal>>(withQuery("/api/v1/refusals", { tool, threadId: thread, caller, code, limit, cursor }));
      return { ...page, items: page.items.map((refusal) => ({ ...refusal, id: refusal.callId })) };
    },
    { changes: reportsCalls, everyMs: 10_000 },
  );

// A record of all kinds: a new one that is missing here is a type error.
const kinds: Record<ErrorKind, true> = {
  tool_not_found: true, arguments_invalid: true, dependency_not_met: true, rate_limited: true, overloaded: true, approval_required: true, approval_denied: true,
  approval_timeout: true, forbidden: true, idempotency_key_reused: true, idempotency_in_progress: true, tool_failed_status: true, tool_maintenance: true,
  tool_unavailable: true, tool_error: true, crashed: true, timeout: true, upstream_unreachable: true, upstream_error: true, state_conflict: true,
  state_not_found: true, state_too_large: true, state_unreadable: true, state_limit: true, store_unavailable: true, shutting_down: true, cancelled: true,
  interrupted: true, internal: true,
};
export const errorKinds = Object.keys(kinds) as ErrorKind[];
