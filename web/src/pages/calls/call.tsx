// One call: where it came from, how it went, what it was given and what it returned.

import { useMemo } from "preact/hooks";
import type { Call } from "../../api/types.ts";
import { bytes, duration } from "../../base/format.ts";
import { pretty, valueText } from "../../base/json.ts";
import { callOf, cancelCall, hasEnded } from "../../data/calls.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton, CopyButton } from "../../ui/button.tsx";
import { Icon } from "../../ui/icon.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address, route } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { CallBadge } from "../../ui/status.tsx";
import { Ago, Time } from "../../ui/time.tsx";
import { Row } from "../tools/why.tsx";
import { NotFound } from "../unknown.tsx";
import { FailureCard } from "./failure.tsx";
import { TimelineCard } from "./timeline.tsx";

export function CallPage({ id }: { id: string }) {
  const t = texts.value;
  const resource = useMemo(() => callOf(id), [id]);
  useResource(resource);
  const isGone = resource.error.value?.code === "call_not_found";
  if (isGone && !resource.data.value) {
    return (
      <NotFound title={t.calls.unknown} back={{ href: address.calls(), name: t.nav.calls, isRaw: false }}>
        <p>
          <Raw text={resource.error.value?.message ?? ""} />
        </p>
        <p>
          {t.calls.unknownText} <Code text="store.retention.calls" />.
        </p>
        <p>
          {t.calls.unknownRefused} <a href={address.calls("view=refusals")}>{t.calls.refusals}</a>
        </p>
      </NotFound>
    );
  }
  return (
    <section class="page">
      <p class="crumbs">
        <a href={address.calls(route.value.query.toString())}>{t.nav.calls}</a>
      </p>
      {isGone && (
        <p class="callout warn" role="status">
          <Icon name="info" /> <span>{t.calls.gone}</span>
        </p>
      )}
      <Loaded of={resource}>{(snapshot) => <Details call={snapshot.value} reread={() => resource.read()} />}</Loaded>
    </section>
  );
}

function Details({ call, reread }: { call: Call; reread: () => Promise<void> }) {
  const t = texts.value.calls;
  return (
    <div class="call-parts" id="call">
      <div class="page-head">
        <div class="grow">
          <h1 class="tool-name">
            <a href={address.tool(call.tool)}>
              <Code text={call.tool} limit={80} />
            </a>{" "}
            <CallBadge status={call.status} />
          </h1>
          <p class="call-id quiet">
            <Code text={call.id} /> <CopyButton text={call.id} />
          </p>
        </div>
        <div class="actions">
          {hasEnded(call) && (
            <a class="button" href={address.tool(call.tool, new URLSearchParams({ tab: "try", call: call.id }).toString())}>
              {texts.value.tryIt.again}
            </a>
          )}
          {!hasEnded(call) && may("tools:call") && (
            <ActButton class="danger" act={() => cancelCall(call.id).then(() => (say(t.cancelled), reread()))}>
              {t.cancel}
            </ActButton>
          )}
        </div>
      </div>
      <div class="columns even">
        <Course call={call} />
        <Origin call={call} />
      </div>
      {call.error && <FailureCard error={call.error} />}
      <TimelineCard call={call} />
      <Value title={t.arguments} text={pretty(call.arguments ?? {})} />
      {call.output !== undefined && <Value title={t.output} text={valueText(call.output)} />}
      {call.output === undefined && call.status === "success" && <p class="quiet">{t.noOutput}</p>}
      {(call.content ?? []).length > 0 && <Value title={t.content} text={contentText(call)} />}
    </div>
  );
}

/** Text blocks as they are; images and files by their type and size, because their bytes say nothing to a reader. */
export function contentText(call: Call): string {
  return (call.content ?? [])
    .map((block) => ("text" in block ? block.text : "data" in block ? pretty({ ...block, data: `… ${bytes((block.data.length * 3) / 4)}` }) : pretty(block)))
    .join("\n\n");
}

function Course({ call }: { call: Call }) {
  const t = texts.value.calls;
  return (
    <section class="card">
      <dl class="facts">
        <Row name={t.started}>
          <Time at={call.startedAt} /> · <Ago at={call.startedAt} />
        </Row>
        {call.queuedMs != null && (
          <Row name={t.queued}>
            <span class="num">{duration(call.queuedMs)}</span> <span class="quiet">{t.queuedText}</span>
          </Row>
        )}
        {call.durationMs != null && (
          <Row name={t.duration}>
            <span class="num">{duration(call.durationMs)}</span>
          </Row>
        )}
        {call.endedAt && (
          <Row name={t.ended}>
            <Time at={call.endedAt} />
          </Row>
        )}
        {call.attempts != null && (
          <Row name={t.attempts}>
            <span class="num">{call.attempts}</span>
            {call.cached && <span class="quiet"> · {t.cached}</span>}
            {call.replayed && <span class="quiet"> · {t.replayed}</span>}
          </Row>
        )}
        {call.effect && <Row name={t.effect}>{t.effects[call.effect]}</Row>}
        {call.durability && call.durability in t.durabilities && <Row name={t.durability}>{t.durabilities[call.durability as keyof typeof t.durabilities]}</Row>}
      </dl>
    </section>
  );
}

function Origin({ call }: { call: Call }) {
  const t = texts.value.calls;
  return (
    <section class="card">
      <dl class="facts">
        {call.caller && (
          <Row name={t.caller}>
            <Raw text={call.caller} limit={128} />
          </Row>
        )}
        {call.threadId && (
          <Row name={t.thread}>
            <a href={address.thread(call.threadId)}><Code text={call.threadId} /></a> · <a href={address.calls(new URLSearchParams({ thread: call.threadId }).toString())}>{t.callsOfThread}</a>
          </Row>
        )}
        {call.runId && (
          <Row name={t.run}>
            <a href={address.run(call.runId)}><Code text={call.runId} /></a> · <a href={address.calls(new URLSearchParams({ run: call.runId }).toString())}>{t.callsOfRun}</a>
          </Row>
        )}
        {call.approval && (
          <Row name={t.approval}>
            <a href={address.approval(call.approval.id)}>
              <Code text={call.approval.id} />
            </a>
          </Row>
        )}
        {call.traceId && (
          <Row name={t.trace}>
            <Code text={call.traceId} /> <CopyButton text={call.traceId} />
          </Row>
        )}
        {call.modelCallId && (
          <Row name={t.modelCall}>
            <Code text={call.modelCallId} />
          </Row>
        )}
        {call.idempotencyKey && (
          <Row name={t.key}>
            <Code text={call.idempotencyKey} />
          </Row>
        )}
      </dl>
    </section>
  );
}

function Value({ title, text }: { title: string; text: string }) {
  return (
    <section class="card">
      <div class="card-head">
        <h2>{title}</h2>
        <CopyButton text={text} />
      </div>
      <RawBlock text={text} label={title} />
    </section>
  );
}
