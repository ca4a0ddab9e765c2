// English texts of MCP servers and nodes.

export const servers = {
  none: "No MCP servers",
  noneText: "A section [mcp_servers.NAME] of the config adds one. This command writes it:",
  restart: "Restart",
  unknown: "MCP server not found",
  transport: "Transport",
  protocol: "Protocol",
  stateless: "without sessions",
  sessions: "with sessions",
  program: "Program",
  note: "Note",
  toolState: { pending_approval: "waiting for approval", quarantined: "not usable" },
  logs: "Log, newest first",
  changes: "Definitions waiting for approval",
  changesText: "They differ from the approved ones. These tools are not offered until a person approves them.",
  isNew: "new",
  hasChanged: "changed",
  approve: "Approve",
  approveText: "Models will read the definition as it is shown here. Grants of a changed tool end.",
  approved: "The definition was approved",
};

export const nodes = {
  alive: "alive",
  dead: "gone",
  version: "Version",
  layouts: (read: number, written: number) => `records: reads ${read}, writes ${written}`,
  config: "Config",
  differs: "other config",
  self: "this node",
  maintainer: "does maintenance",
  one: "One node uses this store. Several nodes can share a Redis; the documentation of this version tells how:",
  answer: { reloaded: "has reloaded", refused: "refused its config", unanswered: "did not answer" },
};
