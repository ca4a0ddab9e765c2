// One MCP server: its connection, definitions that wait for approval, its tools, and what it logged.

import { useMemo } from "preact/hooks";
import type { McpServerInfo } from "../../api/types.ts";
import { logsOf, serverOf } from "../../data/servers.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { Badge } from "../../ui/status.tsx";
import { Row } from "../tools/why.tsx";
import { NotFound, Suggestions } from "../unknown.tsx";
import { Changes } from "./changes.tsx";
import { ConnectionState, RestartButton } from "./connection.tsx";

export function ServerPage({ name }: { name: string }) {
  const t = texts.value;
  const resource = useMemo(() => serverOf(name), [name]);
  useResource(resource);
  const error = resource.error.value;
  if (error?.status === 404) {
    return (
      <NotFound title={t.servers.unknown} back={{ href: address.servers(), name: t.nav.servers, isRaw: false }}>
        <p><Raw text={error.message} /></p>
        <Suggestions links={(error.problem?.suggestions ?? []).map((one) => ({ href: address.server(one), name: one, isRaw: true }))} />
      </NotFound>
    );
  }
  return (
    <Loaded of={resource}>
      {(snapshot) => (
        <section class="page">
          <p class="crumbs"><a href={address.servers()}>{t.nav.servers}</a></p>
          <div class="page-head">
            <h1 class="tool-name"><Code text={name} limit={80} /></h1>
            <RestartButton server={snapshot.value} />
          </div>
          <Changes name={name} />
          <div class="columns even">
            <Facts server={snapshot.value} />
            <Tools server={snapshot.value} />
          </div>
          {may("admin") && <Logs name={name} />}
        </section>
      )}
    </Loaded>
  );
}

/** Servers of this version and later need no session. */
const statelessSince = "2026-07-28";

function Facts({ server }: { server: McpServerInfo }) {
  const t = texts.value;
  const { details } = server;
  const text = (name: string): string => String(details[name] ?? "");
  const version = text("protocolVersion");
  const { serverInfo: program, notes = [] } = details as { serverInfo?: Record<string, string>; notes?: string[] };
  return (
    <dl class="card facts">
      <Row name={t.tools.status}><ConnectionState server={server} /></Row>
      {details.lastStderr ? <Row name="stderr"><Code text={text("lastStderr")} limit={1000} /></Row> : null}
      <Row name={t.servers.transport}><Code text={text("transport")} /> <Code text={text("command") || text("url")} limit={600} /></Row>
      {version && <Row name={t.servers.protocol}><Code text={version} /> {version >= statelessSince ? t.servers.stateless : t.servers.sessions}</Row>}
      {program && <Row name={t.servers.program}><Raw text={`${program.name} ${program.version}`} limit={200} /></Row>}
      {notes.map((note) => <Row key={note} name={t.servers.note}><Raw text={note} limit={600} /></Row>)}
    </dl>
  );
}

function Tools({ server: { tools } }: { server: McpServerInfo }) {
  const t = texts.value;
  return (
    <section class="card">
      <h2>{t.nav.tools} <span class="count quiet-count">{tools.length}</span></h2>
      <ul class="lines">
        {tools.map(({ name, toolName, state, reason }) => (
          <li key={name} class="line">
            <span class="grow">
              {toolName ? <a href={address.tool(toolName)}><Code text={toolName} /></a> : <Code text={name} />}
              {reason && <div class="quiet"><Raw text={reason} limit={600} /></div>}
            </span>
            {state !== "registered" && <Badge icon="warning" tone="warn" word={t.servers.toolState[state]} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Logs({ name }: { name: string }) {
  const t = texts.value.servers;
  const resource = useMemo(() => logsOf(name), [name]);
  useResource(resource);
  return (
    <section class="card">
      <h2>{t.logs}</h2>
      <Loaded of={resource}>
        {(snapshot) => (
          <div class="block log" tabIndex={0} role="group" aria-label={t.logs}>
            {snapshot.value.length === 0 && "–"}
            {snapshot.value.map((line, index) => <div key={index}><Code text={line} limit={2000} /></div>)}
          </div>
        )}
      </Loaded>
    </section>
  );
}
