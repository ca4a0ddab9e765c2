// One tool: its status and actions, and its parts behind tabs.

import { useMemo, useState } from "preact/hooks";
import type { Tool } from "../../api/types.ts";
import { closest } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { enableAndReset, disableTool, resetTool, toolNames, toolOf, tools } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address, route } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { ToolBadge } from "../../ui/status.tsx";
import { Tabs } from "../../ui/tabs.tsx";
import { Charts } from "../overview/charts.tsx";
import { NotFound, Suggestions } from "../unknown.tsx";
import { Calls } from "./calls.tsx";
import { Dependencies } from "./dependencies.tsx";
import { DisableDialog, MaintenanceDialog } from "./dialogs.tsx";
import { Hints } from "./hints.tsx";
import { Limits } from "./limits.tsx";
import { Numbers } from "./numbers.tsx";
import { SchemaTab } from "./schema.tsx";
import { TryTab } from "./try/try.tsx";
import { Why } from "./why.tsx";

const tabNames = ["status", "try", "schema", "limits", "calls", "dependencies"] as const;
type TabName = (typeof tabNames)[number];

export function ToolPage({ name }: { name: string }) {
  const resource = useMemo(() => toolOf(name), [name]);
  useResource(resource);
  const error = resource.error.value;
  if (error?.status === 404 && error.code === "tool_not_found") return <UnknownTool name={name} suggestions={error.problem?.suggestions ?? []} detail={error.message} />;
  return <Loaded of={resource}>{(snapshot) => <Details tool={snapshot.value} reread={() => resource.read()} />}</Loaded>;
}

function Details({ tool, reread }: { tool: Tool; reread: () => Promise<void> }) {
  const t = texts.value;
  const asked = route.value.query.get("tab");
  const tab: TabName = tabNames.find((name) => name === asked) ?? "status";
  const threadId = route.value.query.get("thread") ?? "";
  // The form of an earlier call stays that form while another part is looked at.
  const call = route.value.query.get("call") ?? "";
  const href = (name: TabName) => address.tool(tool.name, new URLSearchParams({ ...(name !== "status" && { tab: name }), ...(threadId && { thread: threadId }), ...(call && { call }) }).toString());
  return (
    <section class="page">
      <p class="crumbs">
        <a href={address.tools()}>{t.nav.tools}</a>
      </p>
      <div class="page-head">
        <div class="grow">
          <h1 class="tool-name">
            <Code text={tool.name} limit={80} /> <ToolBadge status={tool.status} />
          </h1>
          <Hints tool={tool} />
        </div>
        {may("tools:write") && <Actions tool={tool} reread={reread} />}
      </div>
      <div class="description">{tool.description.length > 300 ? <RawBlock text={tool.description} label={t.tool.description} /> : <Raw text={tool.description} />}</div>
      <Tabs label={t.tool.parts} current={tab} tabs={tabNames.map((name) => ({ name, title: t.tool.tabs[name], href: href(name) }))} />
      {tab === "status" && (
        <>
          <div class="columns">
            <Why tool={tool} threadId={threadId} />
            <Numbers tool={tool} />
          </div>
          <Charts tool={tool.name} />
        </>
      )}
      {tab === "try" && <TryTab tool={tool} />}
      {tab === "schema" && <SchemaTab tool={tool} />}
      {tab === "limits" && <Limits tool={tool} />}
      {tab === "calls" && <Calls name={tool.name} />}
      {tab === "dependencies" && <Dependencies tool={tool} />}
    </section>
  );
}

function Actions({ tool, reread }: { tool: Tool; reread: () => Promise<void> }) {
  const t = texts.value.tool;
  const [open, setOpen] = useState<"none" | "maintenance" | "disable">("none");
  const done = (text: string) => {
    say(text);
    setOpen("none");
    return reread();
  };
  const close = () => setOpen("none");
  return (
    <div class="actions">
      <ActButton title={t.resetText} act={() => resetTool(tool.name).then(() => done(t.wasReset))}>
        {t.reset}
      </ActButton>
      <button type="button" onClick={() => setOpen("maintenance")}>
        {t.maintenance}
      </button>
      {tool.status === "unavailable" && (
        <ActButton act={() => enableAndReset(tool.name).then(() => done(t.wasEnabled))}>{t.enable}</ActButton>
      )}
      {tool.status !== "unavailable" && (
        <button type="button" onClick={() => setOpen("disable")}>
          {t.disable}
        </button>
      )}
      {open === "maintenance" && <MaintenanceDialog name={tool.name} close={close} done={() => void done(t.inMaintenance)} />}
      {open === "disable" && <DisableDialog close={close} disable={(reason) => disableTool(tool.name, reason).then(() => done(t.wasDisabled))} />}
    </div>
  );
}

function UnknownTool({ name, suggestions, detail }: { name: string; suggestions: readonly string[]; detail: string }) {
  const t = texts.value;
  useResource(tools);
  const near = suggestions.length > 0 ? suggestions : closest(name, toolNames.value);
  return (
    <NotFound title={t.tool.unknown} back={{ href: address.tools(), name: t.nav.tools, isRaw: false }}>
      <p>
        <Raw text={detail} />
      </p>
      <Suggestions links={near.map((one) => ({ href: address.tool(one), name: one, isRaw: true }))} />
    </NotFound>
  );
}
