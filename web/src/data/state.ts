// Contexts of tool state, one state of a context, and what a person is typing into it.

import { signal } from "@preact/signals";
import { ApiError, getAll, getText, post, put, segment, withQuery } from "../api/client.ts";
import type { ContextInfo, HistoryEntry, HubEvent, Page, StateEntry, StateKind, StateVersion } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { parseExact } from "../base/exact-json.ts";
import type { Json } from "../base/json.ts";
import { same } from "../base/merge.ts";
import { Resource } from "./resource.ts";

export const stateKinds: readonly StateKind[] = ["business", "session", "cache", "connection"];

/** The list shows no more contexts; a thread or a tool makes it shorter. */
export const maxContexts = 5_000;

// No event reports a write, but most are made by calls.
const saysState = ({ event }: HubEvent): boolean => event.startsWith("tool.execut") || event === "thread.swept" || event === "stream.thinned";

const contextsPath = "/api/v1/state/contexts";
const pathOf = (id: string, kind: string, rest = ""): string => `${contextsPath}/${segment(id)}/${kind}${rest}`;

const newestFirst = (list: ContextInfo[]): ContextInfo[] => list.sort((a, b) => b.updatedAt.localeCompare(a.updatedAt));

export const contextsOf = (thread: string, tool: string): Resource<ContextInfo[]> =>
  new Resource(async () => newestFirst(await getAll<ContextInfo>(withQuery(contextsPath, { threadId: thread, tool }), maxContexts)), { changes: saysState, everyMs: 10_000 });

/** One context, or null; the list of its thread has it. */
export function contextOf(id: string): Resource<ContextInfo | null> {
  const slash = id.lastIndexOf("/");
  const [thread, name] = [id.slice(0, slash), id.slice(slash + 1)];
  const find = async (query: Record<string, string>) => (await getAll<ContextInfo>(withQuery(contextsPath, query), 20_000)).find((one) => one.id === id) ?? null;
  // A tool may have the name of a state that is another tool's; then only the whole list has it.
  const read = async () => (slash < 0 ? null : thread === "~" ? ((await find({ tool: name })) ?? (await find({}))) : find({ threadId: thread }));
  return new Resource(() => read().catch((error: unknown) => {
    // An id that cannot be one names nothing.
    if (error instanceof ApiError && error.status === 422) return null;
    throw error;
  }), { changes: saysState, everyMs: 5_000 });
}

export const entryOf = (id: string, kind: StateKind): Resource<StateEntry | null> =>
  new Resource(() => readEntry(id, kind), { changes: saysState, everyMs: 2_000 });

async function readEntry(id: string, kind: StateKind): Promise<StateEntry | null> {
  try {
    return parseExact(await getText(pathOf(id, kind))) as unknown as StateEntry;
  } catch (error) {
    if (error instanceof ApiError && error.code === "state_not_found") return null;
    throw error;
  }
}

/** Whether both are one write of the state. A cache has no tags, so its data decides. */
export const isSameWrite = (one: StateEntry | null, other: StateEntry | null): boolean =>
  one === null || other === null ? one === other : one.etag || other.etag ? one.etag === other.etag : same(one.data as Json, other.data as Json);

const page = async <T>(path: string, cursor: string | null): Promise<Page<T>> =>
  parseExact(await getText(withQuery(path, { limit: 50, cursor }))) as unknown as Page<T>;

export const versionsOf = (id: string): Promise<StateVersion[]> => page<StateVersion>(pathOf(id, "business", "/versions"), null).then(({ items }) => items);
export const historyPage = (id: string, cursor: string | null): Promise<Page<HistoryEntry>> => page(pathOf(id, "business", "/history"), cursor);

const ifMatch = (entry: StateEntry): Record<string, string> => (entry.etag ? { "if-match": `"${entry.etag}"` } : {});

export const rollBack = (entry: StateEntry, version: number): Promise<unknown> =>
  post(pathOf(entry.contextId, "business", "/rollback"), { version }, ifMatch(entry));

/** What a person typed. Kept while the page is open, whatever happens to the state or the connection meanwhile. */
export interface Draft {
  text: string;
  /** The state that was changed; null if there was none. */
  base: StateEntry | null;
  /** A time to live such as `1h`; empty to leave it as it is, `never` for none. */
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

function ttlOf({ ttl, base }: Draft): string | null {
  if (ttl) return ttl === "never" ? null : ttl;
  // A write without a time to live would end the present one.
  return base?.expiresAt ? `${Math.max(1, Date.parse(base.expiresAt) - serverNow())}ms` : null;
}

/** Writes the data if the state is still what the draft began with; false if it is not. */
export async function saveState(id: string, kind: StateKind, draft: Draft, data: Json): Promise<boolean> {
  // A cache cannot be compared by the server.
  if (kind === "cache" && !isSameWrite(await readEntry(id, kind), draft.base)) return false;
  const condition = draft.base ? ifMatch(draft.base) : { "if-none-match": "*" };
  try {
    await put(pathOf(id, kind), { data, ttl: ttlOf(draft) }, condition);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 412) return false;
    throw error;
  }
}
