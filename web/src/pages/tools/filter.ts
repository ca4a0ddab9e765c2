// Which tools a list shows, in which order. The address holds both.

import { rank } from "../../base/match.ts";
import type { Tool, ToolStatus } from "../../api/types.ts";

export type SortName = "name" | "status" | "calls" | "errors" | "p95" | "inFlight";

export interface ToolFilter {
  q: string;
  /** A status, "withheld" for all but available ones, or "". */
  status: string;
  kind: string;
  sort: SortName;
  descending: boolean;
}

const sorts: readonly SortName[] = ["name", "status", "calls", "errors", "p95", "inFlight"];

export function readFilter(query: URLSearchParams): ToolFilter {
  const sort = query.get("sort") ?? "";
  const descending = sort.startsWith("-");
  const name = sorts.find((known) => known === sort.replace(/^-/, "")) ?? "name";
  return { q: query.get("q") ?? "", status: query.get("status") ?? "", kind: query.get("kind") ?? "", sort: name, descending };
}

/** What stands in the address after a click on the head of a column. Numbers begin with the largest. */
export function nextSort(filter: ToolFilter, name: SortName): string {
  const isNumber = name !== "name" && name !== "status";
  if (filter.sort !== name) return isNumber ? `-${name}` : name;
  return filter.descending ? name : `-${name}`;
}

const order: Record<ToolStatus, number> = { failed: 0, unavailable: 1, maintenance: 2, available: 3 };

const values: Record<Exclude<SortName, "name">, (tool: Tool) => number> = {
  status: (tool) => order[tool.status],
  calls: (tool) => tool.stats.calls,
  errors: (tool) => (tool.stats.calls > 0 ? tool.stats.errors / tool.stats.calls : 0),
  p95: (tool) => tool.stats.p95Ms,
  inFlight: (tool) => tool.stats.inFlight + tool.stats.queued,
};

export function applyFilter(tools: readonly Tool[], filter: ToolFilter): Tool[] {
  const query = filter.q.trim();
  const found = tools.filter((tool) => {
    if (filter.kind && tool.kind !== filter.kind) return false;
    if (filter.status === "withheld" ? tool.status === "available" : filter.status && tool.status !== filter.status) return false;
    return !query || rank(query, tool.name, `${tool.description} ${(tool.metadata.tags ?? []).join(" ")}`) !== null;
  });
  const direction = filter.descending ? -1 : 1;
  const byName = (a: Tool, b: Tool) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  if (filter.sort === "name") return found.sort((a, b) => direction * byName(a, b));
  const value = values[filter.sort];
  return found.sort((a, b) => direction * (value(a) - value(b)) || byName(a, b));
}
