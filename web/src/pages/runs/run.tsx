// One run: what it did step by step, what it used, and what it waits for.

import { useEffect, useMemo } from "preact/hooks";
import type { Agent, Run } from "../../api/types.ts";
import { now } from "../../base/clock.ts";
import { closest } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { type RunStep, stepsOf } from "../../data/run-steps.ts";
import { agentOf, cancelRun, isOpen, newestRuns, runOf, type RunView } from "../../data/runs.ts";
import { may } from "../../data/session.ts";
import { agents } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton, CopyButton } from "../../ui/button.tsx";
import { Icon } from "../../ui/icon.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { CallBadge, RunBadge } from "../../ui/status.tsx";
import { Ago, Time } from "../../ui/time.tsx";
import { type Part, Waterfall, type WaterfallRow } from "../../ui/waterfall.tsx";
import { Row } from "../tools/why.tsx";
import { NotFound, Suggestions } from "../unknown.tsx";
import { Numbers } from "./facts.tsx";
import { OpenCalls } from "./open-calls.tsx";

export function RunPage({ id }: { id: string }) {
  const resource = useMemo(() => runOf(id), [id]);
  useResource(resource);
  useResource(agents);
  const isGone = resource.error.value?.code === "run_not_found";
  if (isGone && !resource.data.value) return <UnknownRun id={id} message={resource.error.value?.message ?? ""} />;
  return (
    <section class="page">
      <p class="crumbs">
        <a href={address.threads("view=runs")}>{texts.value.runs.title}</a>
      </p>
      {isGone && (
        <p class="callout warn" role="status">
          <Icon name="info" /> <span>{texts.value.threads.gone}</span>
        </p>
      )}
      <Loaded of={resource}>
        {(snapshot) => (
          <Details view={snapshot.value} agent={agentOf(agents.data.value?.value ?? [], snapshot.value.run.agent)} reread={() => resource.read()} />
        )}
      </Loaded>
    </section>
  );
}

function UnknownRun({ id, message }: { id: string; message: string }) {
  const t = texts.value;
  const list = useMemo(() => newestRuns("", ""), []);
  useEffect(() => void list.read(), []);
  const near = closest(id, list.data.value?.value.items.map((run) => run.id) ?? []);
  return (
    <NotFound title={t.runs.unknown} back={{ href: address.threads("view=runs"), name: t.runs.title, isRaw: false }}>
      <p>
        <Raw text={message} />
      </p>
      <p>
        {t.threads.unknownText} <Code text="store.retention.idle_threads" />
      </p>
      <Suggestions links={near.map((name) => ({ href: address.run(name), name, isRaw: true }))} />
    </NotFound>
  );
}

function Details({ view: { run, calls }, agent, reread }: { view: RunView; agent: Agent | undefined; reread: () => Promise<void> }) {
  const t = texts.value.runs;
  const { steps, totalMs } = stepsOf(run, calls, isOpen(run) ? now.value : 0);
  return (
    <div class="call-parts" id="run">
      <div class="page-head">
        <div class="grow">
          <h1 class="tool-name">
            {t.one} <RunBadge status={run.status} />
          </h1>
          <p class="call-id quiet">
            <Code text={run.id} /> <CopyButton text={run.id} />
          </p>
        </div>
        <CancelRun run={run} done={reread} />
      </div>
      <div class="columns even">
        <section class="card">
          <dl class="facts">
            <Row name={texts.value.calls.thread}>
              <a href={address.thread(run.threadId)}>
                <Code text={run.threadId} limit={128} />
              </a>
            </Row>
            <Row name={t.agent}>
              <Code text={run.agent} />
            </Row>
            <Row name={texts.value.calls.started}>
              <Time at={run.startedAt} /> · <Ago at={run.startedAt} />
            </Row>
            {run.traceId && (
              <Row name={texts.value.calls.trace}>
                <Code text={run.traceId} /> <CopyButton text={run.traceId} />
              </Row>
            )}
          </dl>
        </section>
        <section class="card">
          <dl class="facts">
            <Numbers run={run} agent={agent} />
            {run.calls.length > 0 && (
              <Row name={texts.value.calls.list}>
                <a href={address.calls(new URLSearchParams({ run: run.id }).toString())} class="num">
                  {run.calls.length}
                </a>
              </Row>
            )}
          </dl>
        </section>
      </div>
      <RunError run={run} />
      <OpenCalls run={run} done={reread} />
      <section class="card">
        <h2>{t.course}</h2>
        {steps.length === 0 ? <p class="quiet">{t.noSteps}</p> : <Waterfall label={t.course} items={steps} keyOf={({ key }) => key} rowOf={rowOf} totalMs={totalMs} />}
      </section>
      {run.content && (
        <section class="card">
          <h2>{texts.value.calls.output}</h2>
          <RawBlock text={run.content} label={texts.value.calls.output} />
        </section>
      )}
    </div>
  );
}

export function CancelRun({ run, done }: { run: Run; done: () => Promise<void> }) {
  const t = texts.value.runs;
  if (!isOpen(run) || !may("tools:call")) return null;
  return (
    <ActButton class="danger" act={() => cancelRun(run.id).then(() => (say(t.cancelled), done()))}>
      {t.cancel}
    </ActButton>
  );
}

/** Why a run failed, or why its answer is not whole. */
export function RunError({ run }: { run: Run }) {
  const t = texts.value.runs;
  if (run.error) {
    return (
      <p class="callout bad">
        <Icon name="warning" />
        <span>
          <Code text={run.error.code} /> <Raw text={run.error.message} limit={1000} />
        </span>
      </p>
    );
  }
  if (run.stop !== "length" && run.stop !== "refusal") return null;
  return (
    <p class="callout warn">
      <Icon name="info" /> <span>{t.stops[run.stop]}</span>
    </p>
  );
}

function rowOf({ key, model, call, record, from, began, to }: RunStep): WaterfallRow {
  const t = texts.value.runs;
  if (model) {
    return {
      name: <>{t.modelRequest} <Raw text={model.model} limit={64} /></>,
      parts: [{ kind: model.error ? "failed" : "model", from, to }],
      note: model.error ? <><Code text={model.error.code} /> <Raw text={model.error.message} limit={300} /></> : <span class="quiet">{t.tokensOf(String(model.usage.inputTokens), String(model.usage.outputTokens))}</span>,
    };
  }
  const status = call?.status ?? "success";
  const parts: Part[] = [{ kind: "wait", from, to: began }, { kind: status === "error" ? "failed" : "work", from: began, to }];
  return {
    isInner: true,
    name: (
      <a href={address.call(key)}>
        <Code text={call?.tool ?? ""} limit={64} />
      </a>
    ),
    parts: parts.filter((part, index) => part.to > part.from || (index === 1 && status !== "awaiting_approval")),
    note: (
      <>
        <CallBadge status={status} />
        {record?.error && <> <Code text={record.error.code} /></>}
        {call?.approvalId && status === "awaiting_approval" && <> <a href={address.approval(call.approvalId)}>{texts.value.calls.approval}</a></>}
      </>
    ),
  };
}
