// Contexts of tool state, one state of a context, and what a person is typing into it.

import { signal } from "@preact/signals";
import { ApiError, getAll, getText, post, put, segment, withQuery } from "../api/client.ts";
import type { ContextInfo, HistoryEntry, HubEvent, Page, StateEntry, StateKind, StateVersion } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { parseExact } from "../base/exact-json.ts";
import type { Json } from "../base/json.ts";
import { same } from "../base/merge.ts";
import { reportsCalls } from "./calls.ts";
import { Resource } from "./resource.ts";

export const stateKinds: readonly StateKind[] = ["business", "session", "cache", "connection"];

/** The list shows no more contexts; a thread or a tool makes it shorter. */
export const maxContexts = 5_000;

// No event reports a write, but most are made by calls.
const mayChangeState = (event: HubEvent): boolean => reportsCalls(event) || event.event === "thread.swept" || event.event === "stream.thinned";

const contextsPath = "/api/v1/state/contexts";
const pathOf = (id: string, kind: string, rest = ""): string => `${contextsPath}/${segment(id)}/${kind}${rest}`;

/** Contexts, the last written first. */
export const contextsOf = (thread: string, tool: string): Resource<Page<ContextInfo>> =>
  new Resource(
    async () => ({ items: (await getAll<ContextInfo>(withQuery(contextsPath, { threadId: thread, tool }), maxContexts)).sort((a, b) => b.updatedAt.localeCompare(a.updatedAt)) }),
    { changes: mayChangeState, everyMs: 10_000 },
  );

/** The contexts of the same thread, or with the same name if all threads share it. */
export function neighboursOf(id: string): Resource<Page<ContextInfo>> {
  const slash = id.lastIndexOf("/");
  return slash > 0 && !id.startsWith("~/") ? contextsOf(id.slice(0, slash), "") : contextsOf("", id.slice(slash + 1));
}

/** A state with what is known of its past. */
export interface StateWithHistory {
  entry: StateEntry | null;
  versions: StateVersion[];
  history: HistoryEntry[];
}

/** One state; its past is read again when it was written, and after calls, which leave entries without writing. */
export function entryOf(id: string, kind: StateKind): Resource<StateWithHistory> {
  let mayHavePast = false;
  const past = async <T>(name: string): Promise<T[]> => (await read<Page<T>>(withQuery(pathOf(id, kind, name), { limit: 100 }))).items;
  const resource: Resource<StateWithHistory> = new Resource(
    async () => {
      const entry = await readEntry(id, kind);
      const before = resource.data.peek()?.value;
      if (before && !mayHavePast && isSameWrite(before.entry, entry)) return { ...before, entry };
      mayHavePast = false;
      const [versions, history] = entry && kind === "business" ? await Promise.all([past<StateVersion>("/versions"), past<HistoryEntry>("/history")]) : [[], []];
      return { entry, versions, history };
    },
    { changes: (event) => mayChangeState(event) && (mayHavePast = true), everyMs: 2_000 },
  );
  return resource;
}

const read = async <T>(path: string): Promise<T> => parseExact(await getText(path)) as T;

async function readEntry(id: string, kind: StateKind): Promise<StateEntry | null> {
  try {
    return await read<StateEntry>(pathOf(id, kind));
  } catch (error) {
    if (error instanceof ApiError && error.code === "state_not_found") return null;
    throw error;
  }
}

/** Whether both are one write of the state. A cache has no tags, so its data decides. */
export const isSameWrite = (one: StateEntry | null, other: StateEntry | null): boolean =>
  one === null || other === null ? one === other : one.etag || other.etag ? one.etag === other.etag : same(one.data as Json, other.data as Json);

const ifMatch = (entry: StateEntry): Record<string, string> => (entry.etag ? { "if-match": `"${entry.etag}"` } : {});

export const rollBack = (entry: StateEntry, version: number): Promise<unknown> =>
  post(pathOf(entry.contextId, "business", "/rollback"), { version }, ifMatch(entry));

/** What a person typed. Kept while the page is open, whatever happens to the state or the connection meanwhile. */
export interface Draft {
  text: string;
  /** The state that was changed; null if there was none. */
  base: StateEntry | null;
  /** A time to live such as `1h`; empty to leave it as it is, `-` for none. */
  ttl: string;
  /** What was typed before a conflict was resolved. */
  mine?: string;
}

const drafts = signal<Readonly<Record<string, Draft>>>({});
const keyOf = (id: string, kind: StateKind): string => `${id}/${kind}`;

export const draftOf = (id: string, kind: StateKind): Draft | null => drafts.value[keyOf(id, kind)] ?? null;

export function setDraft(id: string, kind: StateKind, draft: Draft | null): void {
  const { [keyOf(id, kind)]: _, ...others } = drafts.peek();
  drafts.value = draft ? { ...others, [keyOf(id, kind)]: draft } : others;
}

/** How long the state is still there; null without an end. */
const leftMs = (entry: StateEntry | null): number | null => (entry?.expiresAt ? Date.parse(entry.expiresAt) - serverNow() : null);

/** Whether the state has expired, so that a write needs a time to live of its own. */
export const needsTtl = (draft: Draft, current: StateEntry | null): boolean => draft.ttl === "" && (leftMs(current) ?? 1) <= 0;

/** A write without a time to live would end the present one. */
const ttlOf = (draft: Draft, current: StateEntry | null): string | null => {
  const left = leftMs(current);
  return draft.ttl ? (draft.ttl === "-" ? null : draft.ttl) : left === null ? null : `${left}ms`;
};

/** Writes the data if the state is still what the draft began with; false if it is not, or if its time is over and the draft names no other. */
export async function saveState(id: string, kind: StateKind, draft: Draft, data: Json): Promise<boolean> {
  // The end may have moved without a new tag, and a cache cannot be compared by the server.
  const current = await readEntry(id, kind);
  if (!isSameWrite(current, draft.base) || needsTtl(draft, current)) return false;
  const condition = draft.base ? ifMatch(draft.base) : { "if-none-match": "*" };
  try {
    await put(pathOf(id, kind), { data, ttl: ttlOf(draft, current) }, condition);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 412) return false;
    throw error;
  }
}
