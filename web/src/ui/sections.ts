// The sections of the dashboard, for the navigation, the search dialog, the keys and addresses that name nothing.

import type { Scope } from "../api/types.ts";
import type { IconName } from "./icon.tsx";
import { address, type PageName } from "./router.ts";

interface Section {
  /** The text is `texts.nav` with this name. */
  name: "overview" | "tools" | "calls" | "approvals" | "threads" | "state" | "graph" | "servers" | "nodes" | "alerts" | "settings";
  icon: IconName;
  /** After `g`. */
  key: string;
  href: () => string;
  pages: readonly PageName[];
  /** Without it there is nothing to see. */
  scope?: Scope;
}

export const sections: readonly Section[] = [
  { name: "overview", icon: "overview", key: "o", href: address.overview, pages: ["overview"] },
  { name: "tools", icon: "tools", key: "t", href: address.tools, pages: ["tools", "tool"] },
  { name: "calls", icon: "calls", key: "c", href: address.calls, pages: ["calls", "call"] },
  { name: "approvals", icon: "approvals", key: "a", href: address.approvals, pages: ["approvals", "approval"] },
  { name: "threads", icon: "threads", key: "h", href: address.threads, pages: ["threads", "thread", "run"] },
  { name: "state", icon: "state", key: "s", href: address.state, pages: ["state", "context"], scope: "state:read" },
  { name: "graph", icon: "graph", key: "g", href: address.graph, pages: ["graph"] },
  { name: "servers", icon: "servers", key: "m", href: address.servers, pages: ["servers", "server"] },
  { name: "nodes", icon: "nodes", key: "n", href: address.nodes, pages: ["nodes"] },
  { name: "alerts", icon: "warning", key: "l", href: address.alerts, pages: ["alerts"], scope: "admin" },
  { name: "settings", icon: "settings", key: "e", href: address.settings, pages: ["settings"] },
];
