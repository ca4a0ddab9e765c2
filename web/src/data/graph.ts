// The dependencies between tools, and which of them are drawn.

import { get, withQuery } from "../api/client.ts";
import type { Graph, HubEvent } from "../api/types.ts";
import { reportsCalls } from "./calls.ts";
import { Resource } from "./resource.ts";

export type Edge = Graph["edges"][number];
export type GraphNode = Graph["nodes"][number];

/** More tools than this are not drawn at once. */
export const maxDrawn = 500;

const changesTools = ({ event }: HubEvent): boolean => event.startsWith("tool.") || event.startsWith("mcp.server.") || event === "config.reloaded";

/** The graph with the statuses in a thread, or those that all threads share. Successes in a thread have no event of their own. */
export const graphOf = (threadId: string): Resource<Graph> =>
  new Resource(() => get<Graph>(withQuery("/api/v1/graph", { threadId })), {
    changes: (event) => changesTools(event) || (threadId !== "" && reportsCalls(event)),
    everyMs: threadId ? 5_000 : 30_000,
  });

/** What must succeed before a tool: one list per group of its dependencies. */
export function groupsOf(edges: readonly Edge[]): Edge[][] {
  const groups: Edge[][] = [];
  for (const edge of edges) (groups[edge.group] ??= []).push(edge);
  return groups.filter(Boolean);
}

/** The names of tools that have dependencies or are one. */
export const connectedNames = (edges: readonly Edge[]): string[] => [...new Set(edges.flatMap(({ from, to }) => [from, to]))].sort();

/**
 * A tool with all that must succeed before it and all that waits for it, the closest first. The dependencies of those
 * that wait are left out, except this tool: otherwise one popular tool would bring nearly all others.
 */
export function neighbourhood(edges: readonly Edge[], name: string, limit = maxDrawn): Set<string> {
  const [before, after] = [new Map<string, string[]>(), new Map<string, string[]>()];
  const add = (map: Map<string, string[]>, key: string, value: string) => map.get(key)?.push(value) ?? map.set(key, [value]);
  for (const { from, to } of edges) {
    add(before, to, from);
    add(after, from, to);
  }
  const found = new Set([name]);
  let [up, down] = [[name], [name]];
  const next = (names: string[], map: Map<string, string[]>) =>
    names.flatMap((one) => map.get(one) ?? []).filter((one) => !found.has(one) && found.size < limit && found.add(one));
  while (up.length + down.length > 0) [up, down] = [next(up, before), next(down, after)];
  return found;
}
