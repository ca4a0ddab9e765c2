// One MCP server: its state and tools, changed definitions, and what it logged.

import { get, post, segment, withQuery } from "../api/client.ts";
import type { DefinitionChange, HubEvent, McpServerInfo } from "../api/types.ts";
import { Resource } from "./resource.ts";

const path = (name: string): string => `/api/v1/mcp-servers/${segment(name)}`;

/** A definition that waits has no event of its own. */
const changes = ({ event }: HubEvent): boolean => event.startsWith("mcp.server.") || event.startsWith("tool.") || event === "config.reloaded";

export const serverOf = (name: string): Resource<McpServerInfo> => new Resource(() => get<McpServerInfo>(path(name)), { changes, everyMs: 5_000 });

export const changesOf = (name: string): Resource<DefinitionChange[]> =>
  new Resource(async () => (await get<{ items: DefinitionChange[] }>(`${path(name)}/changes`, { exact: ["before", "after"] })).items, { changes, everyMs: 5_000 });

/** The last lines, the newest first. */
export const logsOf = (name: string): Resource<string[]> =>
  new Resource(async () => (await get<{ items: string[] }>(withQuery(`${path(name)}/logs`, { limit: 200 }))).items.reverse(), { changes, everyMs: 3_000 });

/** Approves the definition that was shown, and no other. */
export const approveDefinition = (name: string, shown: DefinitionChange): Promise<unknown> =>
  post(`${path(name)}/approve`, { digests: { [shown.name]: shown.digest } });
