// Chinese texts of the graph of dependencies.

import type { Messages } from "./en.ts";

export const graph: Messages["graph"] = {
  noneText: "会话中 `clock` 成功之前，不会提供 `report`：",
  choose: "选择工具",
  whole: "整个依赖图",
  counts: (shown, all) => `${shown} / ${all} 个工具`,
  list: "列表形式",
  tooMany: (count, most) => `${count} 个工具有依赖，最多绘制 ${most} 个。选择一个工具查看其邻近的工具。`,
  notRegistered: "未注册",
  zoom: ["缩小", "放大"],
};
