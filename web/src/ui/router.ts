// Addresses of the page's views.

import { signal } from "@preact/signals";
import { base } from "../base/page.ts";

export type PageName =
  | "overview"
  | "tools"
  | "tool"
  | "calls"
  | "call"
  | "approvals"
  | "approval"
  | "threads"
  | "thread"
  | "run"
  | "state"
  | "context"
  | "graph"
  | "servers"
  | "server"
  | "nodes"
  | "alerts"
  | "settings"
  | "unknown";

export interface Route {
  page: PageName;
  /** The name of a tool or a server, or the id of a call, an approval, a thread, a run or a context. */
  param: string;
  query: URLSearchParams;
  /** The path behind /ui, for addresses that name nothing. */
  path: string;
}

const root = `${base}/ui`;

/** The path of a view behind the prefix, such as /tools/weather. */
export const address = {
  overview: () => `${root}/`,
  tools: (query = "") => `${root}/tools${query && `?${query}`}`,
  tool: (name: string, query = "") => `${root}/tools/${encodeURIComponent(name)}${query && `?${query}`}`,
  calls: (query = "") => `${root}/calls${query && `?${query}`}`,
  call: (id: string, query = "") => `${root}/calls/${encodeURIComponent(id)}${query && `?${query}`}`,
  approvals: (view = "") => `${root}/approvals${view && `?view=${view}`}`,
  approval: (id: string) => `${root}/approvals/${encodeURIComponent(id)}`,
  threads: (query = "") => `${root}/threads${query && `?${query}`}`,
  thread: (id: string, query = "") => `${root}/threads/${encodeURIComponent(id)}${query && `?${query}`}`,
  run: (id: string) => `${root}/runs/${encodeURIComponent(id)}`,
  state: (query = "") => `${root}/state${query && `?${query}`}`,
  context: (id: string, query = "") => `${root}/state/${encodeURIComponent(id)}${query && `?${query}`}`,
  graph: (query = "") => `${root}/graph${query && `?${query}`}`,
  servers: () => `${root}/mcp-servers`,
  server: (name: string, query = "") => `${root}/mcp-servers/${encodeURIComponent(name)}${query && `?${query}`}`,
  nodes: () => `${root}/nodes`,
  alerts: () => `${root}/alerts`,
  settings: (query = "") => `${root}/settings${query && `?${query}`}`,
};

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parseRoute(path: string, search: string): Route {
  const rest = path.startsWith(root) ? path.slice(root.length) : path;
  const [first = "", second = "", ...more] = rest.split("/").filter(Boolean).map(decoded);
  const found = (page: PageName, param = ""): Route => ({ page, param, query: new URLSearchParams(search), path: rest });
  if (more.length > 0) return found("unknown");
  if (first === "") return found("overview");
  if (first === "tools") return second ? found("tool", second) : found("tools");
  if (first === "calls") return second ? found("call", second) : found("calls");
  if (first === "approvals") return second ? found("approval", second) : found("approvals");
  if (first === "threads") return second ? found("thread", second) : found("threads");
  if (first === "runs" && second) return found("run", second);
  if (first === "state") return second ? found("context", second) : found("state");
  if (first === "mcp-servers") return second ? found("server", second) : found("servers");
  if (!second && (first === "graph" || first === "nodes" || first === "alerts" || first === "settings")) return found(first);
  return found("unknown");
}

const current = (): Route => parseRoute(location.pathname, location.search);

export const route = signal<Route>(typeof location === "undefined" ? parseRoute("/ui/", "") : current());

let isReturn = false;

/** Whether the browser's Back or Forward led to the present address, so that it should look as it did. */
export const isReturned = (): boolean => isReturn;

/** Goes to an address of the page. */
export function go(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  const isOtherPage = to.split("?")[0] !== location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  isReturn = false;
  route.value = current();
  if (!isOtherPage) return;
  scrollTo(0, 0);
  // A screen reader goes on reading at the new page.
  requestAnimationFrame(() => document.getElementById("main")?.focus({ preventScroll: true }));
}

/** Changes parameters of the present address; null removes one. Not a step of the browser's history. */
export function setQuery(change: Record<string, string | null>): void {
  const query = new URLSearchParams(route.peek().query);
  for (const [name, value] of Object.entries(change)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text && `?${text}`), true);
}

/** Follows links inside the page without loading it again. */
export function startRouter(): void {
  addEventListener("popstate", () => {
    isReturn = true;
    route.value = current();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.origin !== location.origin || link.hash) return;
    if (link.pathname !== root && !link.pathname.startsWith(`${root}/`)) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
