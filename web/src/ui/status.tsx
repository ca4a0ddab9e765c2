// The status of a tool, a call, a run or an approval: a word with a picture, coloured.

import type { ApprovalState, CallStatus, RunStatus, ToolStatus } from "../api/types.ts";
import { texts } from "../i18n/index.ts";
import { Icon, type IconName } from "./icon.tsx";

export type Tone = "good" | "bad" | "warn" | "info" | "off";

export function Badge({ icon, tone, word }: { icon: IconName; tone: Tone; word: string }) {
  return (
    <span class={`badge ${tone}`}>
      <Icon name={icon} />
      {word}
    </span>
  );
}

const toolLooks: Record<ToolStatus, [IconName, Tone]> = {
  available: ["check", "good"],
  failed: ["cross", "bad"],
  maintenance: ["wrench", "info"],
  unavailable: ["off", "warn"],
};

export const ToolBadge = ({ status }: { status: ToolStatus }) => {
  const [icon, tone] = toolLooks[status];
  return <Badge icon={icon} tone={tone} word={texts.value.status[status]} />;
};

const callLooks: Record<CallStatus, [IconName, Tone]> = {
  validating: ["clock", "off"],
  awaiting_approval: ["question", "warn"],
  scheduled: ["clock", "off"],
  executing: ["clock", "info"],
  success: ["check", "good"],
  error: ["cross", "bad"],
  cancelled: ["off", "off"],
};

export const CallBadge = ({ status }: { status: CallStatus }) => {
  const [icon, tone] = callLooks[status];
  return <Badge icon={icon} tone={tone} word={texts.value.callStatus[status]} />;
};

const approvalLooks: Record<ApprovalState, [IconName, Tone]> = {
  pending: ["question", "warn"],
  approved: ["check", "good"],
  used: ["check", "good"],
  denied: ["cross", "bad"],
  timed_out: ["clock", "off"],
  withdrawn: ["off", "off"],
};

export const ApprovalBadge = ({ state }: { state: ApprovalState }) => {
  const [icon, tone] = approvalLooks[state];
  return <Badge icon={icon} tone={tone} word={texts.value.approvalState[state]} />;
};

const runLooks: Record<RunStatus, [IconName, Tone]> = {
  running: ["clock", "info"],
  waiting: ["question", "warn"],
  completed: ["check", "good"],
  failed: ["cross", "bad"],
  cancelled: ["off", "off"],
};

export const RunBadge = ({ status }: { status: RunStatus }) => {
  const [icon, tone] = runLooks[status];
  return <Badge icon={icon} tone={tone} word={texts.value.runs.status[status]} />;
};
