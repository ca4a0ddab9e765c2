// Chinese texts of MCP servers and nodes.

import type { Messages } from "./en.ts";

export const servers: Messages["servers"] = {
  none: "没有 MCP 服务器",
  noneText: "配置中的 [mcp_servers.NAME] 小节会添加服务器。此命令写入该小节：",
  restart: "重启",
  unknown: "找不到 MCP 服务器",
  transport: "传输方式",
  protocol: "协议",
  stateless: "无状态",
  sessions: "有状态",
  program: "程序",
  note: "说明",
  toolState: { pending_approval: "待批准", quarantined: "不可用" },
  logs: "日志，最新在前",
  changes: "待批准的定义",
  changesText: "与已批准的定义不同。有人批准之前，不会提供这些工具。",
  isNew: "新增",
  hasChanged: "更改",
  approve: "批准",
  approveText: "模型会读到这里显示的定义。更改的工具的授权随之失效。",
  approved: "定义已批准",
};

export const nodes: Messages["nodes"] = {
  alive: "正常",
  dead: "已离开",
  version: "版本",
  layouts: (read, written) => `记录格式：可读 ${read}，写入 ${written}`,
  config: "配置",
  differs: "配置不同",
  self: "此节点",
  maintainer: "负责维护",
  one: "只有一个节点使用此存储。多个节点可以共用一个 Redis，方法见此版本的文档：",
  answer: { reloaded: "已重新加载", refused: "拒绝了配置", unanswered: "没有答复" },
};
