// A tool that is not offered: why, until when, and what brings it back.

import { useMemo } from "preact/hooks";
import type { Tool } from "../../api/types.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { enableAndReset, explanationOf, resetTool, toolOf } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { ToolBadge } from "../../ui/status.tsx";
import { Countdown } from "../../ui/time.tsx";
import { Line } from "./line.tsx";

export function WithheldTool({ tool }: { tool: Tool }) {
  const t = texts.value.attention;
  const explanation = useMemo(() => explanationOf(tool.name, ""), [tool.name]);
  const found = useResource(explanation).value;
  const left = found?.value.status === tool.status ? found.value.changesInMs : null;
  return (
    <Line
      icon={tool.status === "maintenance" ? "wrench" : tool.status === "failed" ? "cross" : "off"}
      tone={tool.status === "failed" ? "bad" : tool.status === "maintenance" ? "info" : "warn"}
      title={<><Code text={tool.name} limit={80} /> <ToolBadge status={tool.status} /></>}
      detail={
        <>
          <Raw text={tool.reason} limit={200} />
          {found && left !== null && left !== undefined && <> · {t.changes[tool.status]} <Countdown until={found.at + left} /></>}
        </>
      }
      actions={
        <>
          <a class="button" href={address.tool(tool.name)}>{t.why}</a>
          {may("tools:write") && tool.status !== "unavailable" && <ActButton act={() => resetTool(tool.name).then((info) => say(t.wasReset(info.toolName)))}>{t.reset}</ActButton>}
          {may("tools:write") && tool.status === "unavailable" && !tool.origin && (
            <ActButton act={() => enableAndReset(tool.name).then((info) => say(t.wasEnabled(info.toolName)))}>{t.enable}</ActButton>
          )}
        </>
      }
    />
  );
}

/** A tool that is offered, but not in some threads. */
export function WithheldInThreads({ tool }: { tool: Tool }) {
  const t = texts.value.attention;
  const resource = useMemo(() => toolOf(tool.name), [tool.name]);
  const found = useResource(resource).value;
  const first = found?.value.withheldIn?.[0];
  return (
    <Line
      icon="warning"
      tone="warn"
      title={<><Code text={tool.name} limit={80} /> {t.withheldInThreads(tool.withheldThreads ?? 0)}</>}
      detail={first && <Code text={first} limit={60} />}
      actions={<a class="button" href={address.tool(tool.name, first ? new URLSearchParams({ thread: first }).toString() : "")}>{t.why}</a>}
    />
  );
}
