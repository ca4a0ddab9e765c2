// Chinese texts of alerts.

import type { Messages } from "./en.ts";

export const alerts: Messages["alerts"] = {
  forAdmins: "告警涉及所有租户，仅供具有 admin 权限的密钥查看。",
  none: "没有告警目标",
  noneText: "在配置中添加 [[alerts]]：工具、服务器或运行出现问题时，通知 Webhook、Slack 或 Alertmanager。",
  test: "发送测试",
  retry: "重新发送",
  delivered: "目标已接收消息",
  notDelivered: "目标未接收消息",
  lastAnswer: "最近应答",
  quiet: "当前没有告警。",
  held: "当前告警",
  deliveries: "发送记录",
  noDelivery: "最近一周没有消息。",
  disabled: "已停用",
  ok: "正常",
  waiting: (count) => `${count} 条等待发送`,
  condition: "条件",
  thing: "对象",
  since: "开始时间",
  why: "原因",
  phase: "消息",
  state: "状态",
  attempts: "尝试次数",
  flapping: "频繁变化",
  pending: "待通知",
  pendingTitle: "持续一段时间后才会发送消息",
  phases: { firing: "开始", changed: "变化", repeated: "持续", flapping: "频繁变化", resolved: "恢复", happened: "发生", test: "测试" },
  states: { waiting: "等待", delivered: "已送达", failed: "已放弃" },
};
