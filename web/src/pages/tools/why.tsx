// Why a tool is offered or not: for all threads, or as one of them sees it.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Explanation, Tool } from "../../api/types.ts";
import { useResource } from "../../data/resource.ts";
import { explanationOf } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address, setQuery } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { ToolBadge } from "../../ui/status.tsx";
import { Ago, Countdown } from "../../ui/time.tsx";

export function Why({ tool, threadId }: { tool: Tool; threadId: string }) {
  const t = texts.value.why;
  // The change of the status reaches the tool first; its explanation is another one then.
  const resource = useMemo(() => explanationOf(tool.name, threadId, 2_500), [tool.name, threadId]);
  useResource(resource);
  return (
    <section class="card" aria-labelledby="why">
      <div class="card-head">
        <h2 id="why">{threadId ? t.titleThread : t.title}</h2>
        <ThreadField threadId={threadId} />
      </div>
      <Loaded of={resource}>{(snapshot) => <Facts facts={snapshot.value} at={snapshot.at} tool={tool} />}</Loaded>
    </section>
  );
}

export function ThreadField({ threadId }: { threadId: string }) {
  const t = texts.value.why;
  const [typed, setTyped] = useState(threadId);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setQuery({ thread: typed.trim() });
  };
  return (
    <form class="inline-form" onSubmit={submit}>
      <input type="text" name="thread" aria-label={t.thread} placeholder={t.threadPlaceholder} value={typed} spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
      {threadId && (
        <button
          type="button"
          class="link"
          onClick={() => {
            setTyped("");
            setQuery({ thread: null });
          }}
        >
          {t.allThreads}
        </button>
      )}
    </form>
  );
}

export const Row = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div class="fact">
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

function Facts({ facts, at, tool }: { facts: Explanation; at: number; tool: Tool }) {
  const t = texts.value.why;
  return (
    <>
      <p class={facts.offered ? "verdict good" : "verdict bad"}>
        <Icon name={facts.offered ? "check" : "cross"} />
        <span>{facts.offered ? (facts.probation ? t.offeredOnTrial : t.offered) : t.notOffered}</span>
      </p>
      <dl class="facts">
        <Row name={t.status}>
          <ToolBadge status={facts.status} /> <Raw text={facts.reason} limit={600} />
        </Row>
        {typeof facts.changesInMs === "number" && (
          <Row name={t.changes[facts.status]}>
            <Countdown until={at + facts.changesInMs} />
          </Row>
        )}
        {(facts.missing ?? []).length > 0 && (
          <Row name={t.missing}>
            {(facts.missing ?? []).map((name) => (
              <a key={name} href={address.tool(name)} class="spaced">
                <Code text={name} />
              </a>
            ))}
          </Row>
        )}
        {facts.deniedBy && (
          <Row name={t.deniedBy}>
            <Raw text={facts.deniedBy} />
          </Row>
        )}
        <Row name={t.failures}>
          {t.failuresOf(facts.consecutiveFailures, facts.failureThreshold)}
        </Row>
        {facts.lastFailure && (
          <Row name={t.lastFailure}>
            <Ago at={facts.lastFailure.at} /> · <Code text={facts.lastFailure.kind} /> · <Raw text={facts.lastFailure.text} limit={1000} />
          </Row>
        )}
        {facts.lastSuccessTime && (
          <Row name={t.lastSuccess}>
            <Ago at={facts.lastSuccessTime} />
          </Row>
        )}
        {tool.standing && (
          <Row name={t.since}>
            <Ago at={tool.standing.lastUpdated} />
          </Row>
        )}
        {(tool.withheldThreads ?? 0) > 0 && (
          <Row name={t.threads}>
            {t.withheldThreads(tool.withheldThreads ?? 0)}
            {(tool.withheldIn ?? []).map((threadId) => (
              <a key={threadId} href={address.tool(tool.name, new URLSearchParams({ thread: threadId }).toString())} class="spaced">
                <Code text={threadId} limit={60} />
              </a>
            ))}
          </Row>
        )}
        {facts.source && (
          <Row name={t.source}>
            <Code text={facts.source.name} /> · {texts.value.connectionWord[facts.source.connection]} · <Ago at={facts.source.since} />
            {facts.source.lastError && <> · <Raw text={facts.source.lastError} limit={300} /></>}
          </Row>
        )}
      </dl>
    </>
  );
}
