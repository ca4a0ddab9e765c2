// All tools with their statuses and numbers.

import { computed } from "@preact/signals";
import { ApiError, get, getAll, post, put, segment } from "../api/client.ts";
import type { Explanation, HubEvent, Tool, ToolStatus, ToolStatusInfo } from "../api/types.ts";
import { onEvent } from "../live/client.ts";
import { Resource } from "./resource.ts";

const toolPath = (name: string): string => `/api/v1/tools/${segment(name)}`;

const changesList = ({ event }: HubEvent): boolean =>
  event === "tool.registered" || event === "tool.unregistered" || event === "hub.cleared" || event === "config.reloaded";

/** How often the list was asked for, and what was read singly since: it is newer than the list's answer, in which null has gone. */
let listings = 0;
const newer = new Map<string, Tool | null>();

async function readList(): Promise<Tool[]> {
  listings++;
  newer.clear();
  const list = await getAll<Tool>("/api/v1/tools");
  return list.flatMap((tool) => (newer.has(tool.name) ? (newer.get(tool.name) ?? []) : tool));
}

/** Every tool, by name. The numbers of calls are read again at intervals, the statuses when they change. */
export const tools = new Resource<Tool[]>(readList, { changes: changesList, everyMs: 20_000 });

/** More changed statuses at once than this are read as a whole list. */
const maxSingleReads = 12;
/** After the whole list was read, so many times as long nothing is: with thousands of tools it takes long, and the page has more to do. */
const restAfterAll = 3;
const changed = new Set<string>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** Reads tools whose status changed. To be called once. */
export function watchStatuses(): void {
  onEvent((event) => {
    if (event.event !== "tool.status.changed" || typeof event.toolName !== "string") return;
    changed.add(event.toolName);
    timer ??= setTimeout(() => void readChanged(), 100);
  });
}

async function readChanged(): Promise<void> {
  const names = [...changed];
  changed.clear();
  if (names.length <= maxSingleReads || tools.data.peek() === null) {
    timer = undefined;
    if (tools.data.peek() !== null) await Promise.all(names.map(readOne));
    return;
  }
  const begun = performance.now();
  await tools.read();
  // What changes until then waits for it.
  timer = setTimeout(() => {
    timer = undefined;
    if (changed.size > 0) void readChanged();
  }, restAfterAll * (performance.now() - begun));
}

/** How often tools were read singly, and the last such reading of each that goes on. */
let readings = 0;
const lastReading = new Map<string, number>();

async function readOne(name: string): Promise<void> {
  const [listing, reading] = [listings, ++readings];
  lastReading.set(name, reading);
  // An answer that was asked for before another one may be older.
  const isOvertaken = () => lastReading.get(name) !== reading || listings !== listing;
  const take = (tool: Tool | null) => {
    if (isOvertaken()) return;
    newer.set(name, tool);
    tools.set((list) => list.flatMap((other) => (other.name === name ? (tool ?? []) : other)));
  };
  try {
    take(await get<Tool>(toolPath(name)));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) take(null);
    // A list that cannot be read either turns grey: the status that changed is not the one that it shows.
    else void tools.read();
  } finally {
    if (lastReading.get(name) === reading) lastReading.delete(name);
  }
}

export const toolNames = computed(() => tools.data.value?.value.map((tool) => tool.name) ?? []);

export const statuses: readonly ToolStatus[] = ["failed", "unavailable", "maintenance", "available"];

export const statusCounts = computed(() => {
  const counts: Record<ToolStatus, number> = { available: 0, unavailable: 0, failed: 0, maintenance: 0 };
  for (const tool of tools.data.value?.value ?? []) counts[tool.status]++;
  return counts;
});

export const withheldTools = computed(() => (tools.data.value?.value ?? []).filter((tool) => tool.status !== "available"));

// What explains statuses: one answer per tool and thread, and when it was given, for the countdown.

const concerns = (name: string) => (event: HubEvent) =>
  (event.event === "tool.status.changed" && event.toolName === name) || event.event === "config.reloaded" || event.event.startsWith("mcp.server.");

/** A trial ends, and a thread's facts change, without an event: the page of a tool reads it often. */
export const explanationOf = (name: string, threadId: string, everyMs = 30_000): Resource<Explanation> =>
  new Resource(() => get<Explanation>(`${toolPath(name)}/explain${threadId ? `?threadId=${segment(threadId)}` : ""}`), {
    changes: concerns(name),
    everyMs,
  });

/** What would happen to a call; nothing runs or counts. */
export const dryRun = (name: string, args: unknown, threadId: string): Promise<Explanation> => post(`${toolPath(name)}/explain`, { arguments: args, ...(threadId && { threadId }) });

export const toolOf = (name: string): Resource<Tool> =>
  new Resource(() => get<Tool>(toolPath(name), { exact: ["parameters", "outputSchema", "config"] }), { changes: (event) => concerns(name)(event) || changesList(event), everyMs: 20_000 });

// Changes by hand. Each answers with what holds now; the event that follows lets every page read the tool again.

async function changeStatus(name: string, send: () => Promise<ToolStatusInfo>): Promise<ToolStatusInfo> {
  const info = await send();
  void readOne(name);
  return info;
}

export const resetTool = (name: string) => changeStatus(name, () => post(`${toolPath(name)}/reset`));
export const enableTool = (name: string) => changeStatus(name, () => post(`${toolPath(name)}/enable`));
export const disableTool = (name: string, reason: string) => changeStatus(name, () => post(`${toolPath(name)}/disable`, reason ? { reason } : {}));

/** Makes a disabled tool available again: what disabled it may be a switch, or an override. */
export async function enableAndReset(name: string): Promise<ToolStatusInfo> {
  await enableTool(name);
  return resetTool(name);
}

export interface Maintenance {
  reason: string;
  /** When it ends by itself, in the server's time; null for never. */
  until: number | null;
}

export const setMaintenance = (name: string, { reason, until }: Maintenance) =>
  changeStatus(name, () =>
    put(`${toolPath(name)}/status`, {
      status: "maintenance",
      ...(reason && { reason }),
      ...(until !== null && { until: new Date(until).toISOString() }),
    }),
  );
