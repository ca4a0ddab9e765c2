// What needs a person, the most urgent first. Each line says what can be done about it.

import type { ComponentChildren } from "preact";
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { now } from "../../base/clock.ts";
import { duration, number } from "../../base/format.ts";
import { store, storedList } from "../../base/storage.ts";
import { pending } from "../../data/approvals.ts";
import { acceptClock, dropped, expiringKeys, failedRuns, info, keyCommand, keys, nodes, reloadNodes, restartServer, runs, servers } from "../../data/facts.ts";
import { isOld, type Resource } from "../../data/resource.ts";
import { pendingRestart } from "../../data/restarts.ts";
import { has, may } from "../../data/session.ts";
import { tools, withheldTools } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { connection } from "../../live/client.ts";
import { ActButton } from "../../ui/button.tsx";
import { AsOf } from "../../ui/fresh.tsx";
import { Icon } from "../../ui/icon.tsx";
import { Failure, say } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loading } from "../../ui/state.tsx";
import { Ago, Countdown } from "../../ui/time.tsx";
import { Line } from "./line.tsx";
import { WithheldInThreads, WithheldTool } from "./withheld.tsx";

/** Lines of one kind beyond this are counted. */
const maxLines = 6;

const dismissed = signal<readonly string[]>(storedList("dismissed"));

function dismiss(id: string): void {
  dismissed.value = [...dismissed.value, id].slice(-200);
  store("dismissed", JSON.stringify(dismissed.value));
}

/** What is read, by its name in `texts.attention.sources`. */
const all = { tools, pending, info, servers, nodes, runs, dropped, keys } satisfies Record<string, Resource<unknown>>;
type Source = keyof typeof all;
const names = Object.keys(all) as Source[];

/** Facts that only some servers have or some keys may read are left out. */
const isReadable = (name: Source): boolean => (name === "dropped" ? has("metrics") : name === "keys" ? may("admin") : true);

export function Attention() {
  const t = texts.value.attention;
  const read = names.filter(isReadable);
  useEffect(() => {
    const ends = read.map((name) => all[name].use());
    return () => ends.forEach((end) => end());
  }, [read.join()]);
  const groups: Group[] = [
    approvalLines(), withheldLines(), threadLines(), { lines: serverLines() }, { lines: nodeLines() }, { lines: hubLines() }, runLines(),
    { lines: restartLines() }, { lines: droppedLines() }, keyLines(), { lines: read.flatMap(failureLines) },
  ];
  const lines = groups.flatMap(limited);
  const count = groups.reduce((sum, group) => sum + group.lines.length, 0);
  const oldest = read.map((name) => all[name].data.value).find(isOld);
  const isReady = read.every((name) => all[name].data.value !== null || all[name].error.value !== null);
  return (
    <section class="card attention" aria-labelledby="attention-title">
      <h2 id="attention-title">
        {t.title} {count > 0 && <span class="count quiet-count">{number(count)}</span>}
        {oldest && <AsOf of={{ at: oldest.at }} />}
      </h2>
      <div class={oldest ? "fresh old" : "fresh"}>
        {lines.length > 0 && <ul class="lines">{lines}</ul>}
        {!isReady && <Loading />}
        {isReady && lines.length === 0 && (
          <p class="all-well">
            <Icon name="check" /> {t.nothing}
          </p>
        )}
      </div>
    </section>
  );
}

/** What could not be read might need attention. What the key may not read does not, and a lost connection has its own bar. */
function failureLines(name: Source): ComponentChildren[] {
  const t = texts.value.attention;
  const error = all[name].error.value;
  if (!error || error.status === 401 || error.status === 403 || connection.value.state === "lost") return [];
  return [
    <Line
      key={`error ${name}`}
      icon="warning"
      tone="bad"
      title={t.notRead(t.sources[name])}
      detail={<Failure error={error} />}
      actions={<ActButton act={() => all[name].read()}>{texts.value.common.retry}</ActButton>}
    />,
  ];
}

/** Lines of one kind, and where all of them are listed. */
interface Group {
  lines: ComponentChildren[];
  href?: string;
}

function limited({ lines, href }: Group): ComponentChildren[] {
  if (!href || lines.length <= maxLines) return lines;
  return [
    ...lines.slice(0, maxLines),
    <li key={href} class="line more">
      <a href={href}>{texts.value.attention.more(lines.length - maxLines)}</a>
    </li>,
  ];
}

function approvalLines(): Group {
  const t = texts.value.attention;
  const lines = (pending.data.value?.value ?? []).map((approval) => (
    <Line
      key={approval.id}
      icon="question"
      tone="warn"
      title={<><Code text={approval.tool} limit={80} /> {t.waitsForApproval}</>}
      detail={<>{approval.threadId && <>{t.inThread} <Code text={approval.threadId} limit={60} /> · </>}{t.deniesItself} <Countdown until={approval.expiresAt} /></>}
      actions={<a class="button" href={address.approval(approval.id)}>{may("approvals:write") ? t.decide : t.show}</a>}
    />
  ));
  return { lines, href: address.approvals() };
}

function withheldLines(): Group {
  return { lines: withheldTools.value.map((tool) => <WithheldTool key={tool.name} tool={tool} />), href: address.tools("status=withheld") };
}

function threadLines(): Group {
  const withheld = (tools.data.value?.value ?? []).filter((tool) => tool.status === "available" && (tool.withheldThreads ?? 0) > 0);
  return { lines: withheld.map((tool) => <WithheldInThreads key={`threads ${tool.name}`} tool={tool} />), href: address.tools() };
}

function serverLines(): ComponentChildren[] {
  const t = texts.value.attention;
  return (servers.data.value?.value ?? [])
    .filter(({ connection }) => connection === "disconnected" || connection === "connecting")
    .map((server) => (
      <Line
        key={`server ${server.name}`}
        icon="lost"
        tone="bad"
        title={<>{t.server} <Code text={server.name} limit={80} /> {server.connection === "connecting" ? t.connecting : t.disconnected} <Ago at={server.since} /></>}
        detail={
          <>
            {server.lastError && <Raw text={server.lastError} limit={200} />}
            {server.nextAttempt && <> · {t.nextAttempt} <Countdown until={server.nextAttempt} /></>}
          </>
        }
        actions={may("tools:write") && <ActButton act={() => restartServer(server.name).then(() => say(t.restarting))}>{t.connectNow}</ActButton>}
      />
    ));
}

function nodeLines(): ComponentChildren[] {
  const t = texts.value.attention;
  const list = nodes.data.value?.value ?? [];
  const dead = list
    .filter(({ state }) => state === "dead")
    .map((node) => (
      <Line
        key={`node ${node.id}`}
        icon="lost"
        tone="bad"
        title={<>{t.node} <Code text={node.name} limit={80} /> {t.nodeDead(duration(node.sinceRenewalMs))}</>}
        detail={node.address && <Raw text={node.address} limit={100} />}
        actions={<Hint text={t.nodeHint} />}
      />
    ));
  const digests = new Set(list.filter(({ state }) => state === "alive").map((node) => node.configDigest ?? ""));
  if (digests.size < 2) return dead;
  return [
    ...dead,
    <Line
      key="digests"
      icon="warning"
      tone="warn"
      title={t.differentConfigs(digests.size)}
      actions={may("admin") && <ActButton act={() => reloadNodes().then(() => say(t.reloaded))}>{t.reloadAll}</ActButton>}
    />,
  ];
}

function hubLines(): ComponentChildren[] {
  const t = texts.value.attention;
  const facts = info.data.value?.value;
  if (!facts) return [];
  const lines: ComponentChildren[] = [];
  if (facts.stuck > 0) {
    lines.push(<Line key="stuck" icon="clock" tone="bad" title={t.stuck(facts.stuck)} detail={t.stuckText} actions={<a class="button" href={address.tools("sort=-inFlight")}>{t.showTools}</a>} />);
  }
  if (facts.clockJump) {
    lines.push(
      <Line
        key="clock"
        icon="clock"
        tone="bad"
        title={t.clockJump(duration(Math.abs(facts.clockJump.millis)))}
        detail={<>{t.clockJumpText} <Countdown until={facts.clockJump.acceptedAt} /></>}
        actions={may("admin") && <ActButton act={() => acceptClock().then(() => info.read())}>{t.acceptClock}</ActButton>}
      />,
    );
  }
  for (const damage of facts.storeDamage ?? []) {
    lines.push(<Line key={`damage ${damage}`} icon="warning" tone="bad" title={t.storeDamage} detail={<Raw text={damage} limit={300} />} actions={<Hint text="toolhub doctor" isCommand />} />);
  }
  return lines;
}

function runLines(): Group {
  const t = texts.value.attention;
  const failed = failedRuns(runs.data.value?.value ?? [], now.value).filter(({ id }) => !dismissed.value.includes(id));
  const lines = failed.map((run) => (
    <Line
      key={run.id}
      icon="bot"
      tone="bad"
      title={<>{t.runFailed} <Ago at={run.endedAt ?? run.startedAt} /></>}
      detail={<>{t.inThread} <Code text={run.threadId} limit={60} />{run.error && <> · <Raw text={run.error.message} limit={200} /></>}</>}
      actions={
        <>
          <a class="button" href={address.run(run.id)}>{t.show}</a>
          <button type="button" onClick={() => dismiss(run.id)}>{t.dismiss}</button>
        </>
      }
    />
  ));
  return { lines, href: address.threads("view=runs&status=failed") };
}

function restartLines(): ComponentChildren[] {
  const t = texts.value.attention;
  const settings = pendingRestart.value;
  if (settings.length === 0) return [];
  return [<Line key="restart" icon="settings" tone="warn" title={t.needsRestart} detail={<Raw text={settings.join(", ")} limit={300} />} actions={<Hint text={t.restartHint} />} />];
}

const Hint = ({ text, isCommand = false }: { text: string; isCommand?: boolean }) => (isCommand ? <Code text={text} /> : <span class="quiet">{text}</span>);

function droppedLines(): ComponentChildren[] {
  const t = texts.value.attention;
  const counts = dropped.data.value?.value;
  if (!counts || counts.records + counts.lostCommits === 0) return [];
  return [<Line key="dropped" icon="warning" tone="bad" title={t.dropped(counts.records, counts.lostCommits)} detail={t.droppedText} actions={<Hint text="toolhub doctor" isCommand />} />];
}

function keyLines(): Group {
  const t = texts.value.attention;
  const lines = expiringKeys(keys.data.value?.value ?? [], now.value).map((key) => (
    <Line
      key={key.id}
      icon="person"
      tone="warn"
      title={<>{t.key} <Code text={key.name} limit={80} /> {t.expires}</>}
      detail={<>{t.in} <Countdown until={key.expiresAt ?? ""} /> · {t.another} <Code text={keyCommand(key)} limit={400} /></>}
      actions={<a class="button" href={address.settings("view=keys")}>{t.show}</a>}
    />
  ));
  return { lines, href: address.settings("view=keys") };
}
