// English texts of MCP servers and nodes.

export const servers = {
  title: "MCP servers",
};

export const nodes = {
  title: "Nodes",
};
