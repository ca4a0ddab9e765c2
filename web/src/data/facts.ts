// What the overview knows beside tools and approvals: runs, servers, nodes, keys, dropped records, waiting restarts.

import { get, getAll, getText, post, segment, withQuery } from "../api/client.ts";
import type { HubEvent, Info, Key, McpServer, Node, NodeReload, Page, Run } from "../api/types.ts";
import { Resource } from "./resource.ts";

const day = 86_400_000;
const is = (...types: string[]) => ({ event }: HubEvent) => types.some((type) => event === type || (type.endsWith("*") && event.startsWith(type.slice(0, -1))));

export const info = new Resource<Info>(() => get("/api/v1/info"), { changes: is("store.lost", "config.reloaded"), everyMs: 10_000 });

export const servers = new Resource<McpServer[]>(() => getAll("/api/v1/mcp-servers"), { changes: is("mcp.server.*", "config.reloaded"), everyMs: 30_000 });

export const nodes = new Resource<Node[]>(() => getAll("/api/v1/nodes"), { changes: is("node.*", "config.reloaded"), everyMs: 30_000 });

/** The newest failed runs, of which those of a day want attention. */
export const runs = new Resource<Run[]>(async () => (await get<Page<Run>>(withQuery("/api/v1/runs", { status: "failed", limit: 100 }))).items, {
  changes: is("run.failed"),
});

export const failedRuns = (list: readonly Run[], now: number): Run[] => list.filter((run) => run.status === "failed" && now - Date.parse(run.startedAt) < day);

export const keys = new Resource<Key[]>(() => getAll("/api/v1/keys"), { everyMs: 300_000 });

/** Keys that expire within a week; those that have expired already need no action. */
export const expiringKeys = (list: readonly Key[], now: number): Key[] =>
  list.filter((key) => key.expiresAt && Date.parse(key.expiresAt) > now && Date.parse(key.expiresAt) - now < 7 * day);

/** The command that makes a key like this one, with another name and end. */
export const keyCommand = ({ scopes, tenant }: Pick<Key, "scopes" | "tenant">): string =>
  ["toolhub keys create NAME", ...scopes.map((scope) => `--scope ${scope}`), ...(tenant && tenant !== "default" ? [`--tenant ${tenant}`] : [])].join(" ");

export interface Dropped {
  records: number;
  lostCommits: number;
}

/** Sums of counters in a text of metrics. */
export function readDropped(metrics: string): Dropped {
  const sum = (name: string): number => {
    let total = 0;
    for (const match of metrics.matchAll(new RegExp(`^${name}(?:\\{[^\\n]*\\})? ([0-9.e+]+)$`, "gm"))) total += Number(match[1]);
    return total;
  };
  return {
    records: sum("toolhub_journal_dropped_total"),
    lostCommits: sum("toolhub_store_lost_commits_total"),
  };
}

export const dropped = new Resource<Dropped>(async () => readDropped(await getText("/metrics")), { changes: is("store.lost"), everyMs: 60_000 });

export const restartServer = (name: string): Promise<void> => post(`/api/v1/mcp-servers/${segment(name)}/restart`);
export const reloadNodes = (): Promise<{ nodes: NodeReload[] }> => post("/api/v1/nodes/reload", undefined, {}, { timeoutMs: 120_000 });
export const acceptClock = (): Promise<void> => post("/api/v1/clock/accept");
