// Chinese texts of MCP servers and nodes.

export const servers = {
  title: "MCP 服务器",
};

export const nodes = {
  title: "节点",
};
