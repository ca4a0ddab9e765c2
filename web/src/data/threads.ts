// Threads: the list of them, and what belongs to one: its conversation, its runs, its direct calls and its tools.

import { get, getAll, post, remove, segment, withQuery } from "../api/client.ts";
import type { Agent, Call, ContextInfo, Explanation, HubEvent, Instance, Message, Page, Run, Thread, ToolStatus } from "../api/types.ts";
import { hasEnded, reportsCalls } from "./calls.ts";
import { PagedResource } from "./paged.ts";
import { Resource } from "./resource.ts";
import { isOpen } from "./runs.ts";

const path = (id: string, part = ""): string => `/api/v1/threads/${segment(id)}${part}`;
const pageSize = 100;
// What a model asks for is shown with its numbers as they were written.
const exact = ["arguments"];

const changesThreads = (event: HubEvent): boolean => /^(run|approval|thread)\./.test(event.event) || reportsCalls(event);
const concerns = (id: string) => (event: HubEvent): boolean => event.threadId === id && /^(run|approval|thread)\./.test(event.event);

/** The threads that were active last. */
export const newestThreads = (q: string): PagedResource<Thread> =>
  new PagedResource((limit, cursor) => get(withQuery("/api/v1/threads", { order: "active", q, limit, cursor })), { changes: changesThreads, everyMs: 10_000 });

/** Threads with a text in their id, whenever they were active. */
export const searchThreads = async (q: string): Promise<Thread[]> => (await get<Page<Thread>>(withQuery("/api/v1/threads", { order: "active", q, limit: 5 }))).items;

/** For names close to an unknown one. */
export const recentThreads = newestThreads("");

export const agents = new Resource<Agent[]>(() => getAll("/api/v1/agents"), { changes: ({ event }) => event === "config.reloaded" });

/** A new thread with a random id. */
export const createThread = (): Promise<{ id: string }> => post("/api/v1/threads");
export const deleteThread = (id: string): Promise<void> => remove(path(id));
export const exportPath = (id: string): string => path(id, "/export");
export const closeInstance = (id: string, tool: string): Promise<void> => remove(path(id, `/instances/${segment(tool)}`));

/** Starts a run; the key makes a repeated request the same message. */
export const sendMessage = (id: string, content: string, agent: string, key: string): Promise<unknown> =>
  post(path(id, "/messages"), { content, ...(agent && { agent }) }, { prefer: "respond-async", "idempotency-key": key });

export interface ThreadView {
  messages: Message[];
  /** The newest runs, newest first. */
  runs: Run[];
  /** The newest calls that no run made, oldest first. */
  calls: Call[];
  /** Whether older calls were not read, of which some may be direct ones. */
  hasOlderCalls: boolean;
}

/** Direct calls may stand behind many calls of runs, so further pages are read until there are some. */
const maxCallPages = 5;
const enoughCalls = 20;

/** Reads the direct calls of a thread. Later, only pages with calls that are new or had not ended are read again. */
function directCallsOf(id: string): () => Promise<Pick<ThreadView, "calls" | "hasOlderCalls">> {
  const known = new Map<string, Call>();
  let seen = new Set<string>();
  let hasOlderCalls = false;
  return async () => {
    const read = new Set<string>();
    let cursor: string | null | undefined;
    for (let page = 0; page < maxCallPages; page++) {
      const answer: Page<Call> = await get(withQuery("/api/v1/calls", { threadId: id, view: "short", limit: page === 0 ? pageSize : 500, cursor }));
      for (const call of answer.items) {
        read.add(call.id);
        if (!call.runId) known.set(call.id, call);
      }
      cursor = answer.nextCursor;
      const isOpen = [...known.values()].some((call) => !read.has(call.id) && !hasEnded(call));
      if (!isOpen && answer.items.some((call) => seen.has(call.id))) break;
      hasOlderCalls = Boolean(cursor);
      if (!cursor || (!isOpen && known.size >= enoughCalls)) break;
    }
    seen = read;
    return { calls: [...known.values()].sort((one, other) => one.startedAt.localeCompare(other.startedAt)), hasOlderCalls };
  };
}

/** A thread as it is shown. Messages are only added, so those of whole pages are not read again. */
export function threadOf(id: string): Resource<ThreadView> {
  const directCalls = directCallsOf(id);
  let known: Message[] = [];
  let cursor: string | null = null;
  const readMessages = async (): Promise<Message[]> => {
    for (;;) {
      const page: Page<Message> = await get(withQuery(path(id, "/messages"), { limit: 500, cursor }), { exact });
      if (!page.nextCursor) return [...known, ...page.items];
      known = [...known, ...page.items];
      cursor = page.nextCursor;
    }
  };
  const resource: Resource<ThreadView> = new Resource(
    async () => {
      const [messages, runs, direct] = await Promise.all([
        readMessages(),
        get<Page<Run>>(withQuery(path(id, "/runs"), { limit: 5 }), { exact }),
        directCalls(),
      ]);
      return { messages, runs: runs.items, ...direct };
    },
    // A run that waits goes on without an event when the result of an external call arrives.
    { changes: (event) => concerns(id)(event) || (event.event === "metrics.tick" && (reportsCalls(event) || (resource.data.peek()?.value.runs.some(isOpen) ?? false))) },
  );
  return resource;
}

export const openRun = (view: ThreadView): Run | undefined => view.runs.find(isOpen);

/** The agent that gets the next message, if the message names none. */
export function agentName(view: ThreadView): string {
  const list = agents.data.value?.value ?? [];
  return view.runs[0]?.agent ?? list.find((agent) => agent.default)?.name ?? list[0]?.name ?? "";
}

interface ToolState {
  status: ToolStatus;
  reason: string;
  dependencies?: { toolName: string; met: boolean }[];
}

export interface Withheld {
  name: string;
  status: ToolStatus;
  reason: string;
  missing: string[];
  /** The rule that denies all its calls. */
  deniedBy: string;
}

export interface ThreadTools {
  offered: string[];
  withheld: Withheld[];
}

/** Tools that are available and still not offered are explained one by one, up to this many. */
const maxExplained = 20;

/** What a model is offered in the thread now, and what it is not. */
export const toolsOf = (id: string): Resource<ThreadTools> =>
  new Resource(
    async () => {
      const [states, exported] = await Promise.all([
        get<{ data: { toolStates: Record<string, ToolState> } }>(path(id, "/tool-states?detail=full")),
        get<{ tools: { name: string }[] }>(withQuery("/api/v1/tools/export", { format: "mcp", threadId: id })),
      ]);
      const offered = new Set(exported.tools.map(({ name }) => name));
      const withheld = Object.entries(states.data.toolStates)
        .filter(([name]) => !offered.has(name))
        .map(([name, { status, reason, dependencies = [] }]): Withheld => ({ name, status, reason, missing: dependencies.filter(({ met }) => !met).map(({ toolName }) => toolName), deniedBy: "" }));
      const unexplained = withheld.filter(({ status }) => status === "available").slice(0, maxExplained);
      await Promise.all(
        unexplained.map(async (tool) => {
          tool.deniedBy = (await get<Explanation>(withQuery(`/api/v1/tools/${segment(tool.name)}/explain`, { threadId: id }))).deniedBy ?? "";
        }),
      );
      return { offered: [...offered], withheld };
    },
    // A success in the thread may make another tool available, without an event of its own.
    { changes: (event) => event.event.startsWith("tool.") || event.event === "config.reloaded" || (event.event.startsWith("run.") && event.threadId === id) || reportsCalls(event), everyMs: 10_000 },
  );

/** Whether a name fits one of the names and globs of an agent; null is all tools. */
export function fitsPatterns(name: string, patterns: readonly string[] | null): boolean {
  if (!patterns) return true;
  return patterns.some((pattern) => new RegExp(`^${pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".")}$`).test(name));
}

export const statesOf = (id: string): Resource<ContextInfo[]> =>
  new Resource(() => getAll(withQuery("/api/v1/state/contexts", { threadId: id }), 500), { changes: (event) => concerns(id)(event) || reportsCalls(event) });

export const instancesOf = (id: string): Resource<Instance[]> => new Resource(() => getAll(path(id, "/instances")), { changes: reportsCalls, everyMs: 10_000 });
