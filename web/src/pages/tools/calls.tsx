// The last calls of a tool, and those that were refused before they reached it.

import { useEffect, useMemo, useState } from "preact/hooks";
import { get, segment, withQuery } from "../../api/client.ts";
import type { Call, Page } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { pretty, valueText } from "../../base/json.ts";
import { Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Fresh } from "../../ui/fresh.tsx";
import { sayError } from "../../ui/notice.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { route, setQuery } from "../../ui/router.ts";
import { Empty, Loaded, Loading } from "../../ui/state.tsx";
import { CallBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";
import { Refusals } from "./refusals.tsx";
import { Row } from "./why.tsx";

const pageSize = 50;
const callsPath = (tool: string, cursor: string | null) => withQuery("/api/v1/calls", { tool, view: "short", limit: pageSize, cursor });

export function Calls({ name }: { name: string }) {
  const t = texts.value.calls;
  const first = useMemo(() => new Resource<Page<Call>>(() => get(callsPath(name, null)), { everyMs: 5_000 }), [name]);
  useResource(first);
  const chosen = route.value.query.get("call");
  return (
    <>
      {chosen && <Chosen id={chosen} />}
      <section class="card" aria-labelledby="calls">
        <h2 id="calls">{t.title}</h2>
        <Loaded of={first}>
          {(snapshot) =>
            snapshot.value.items.length === 0 ? (
              <Empty title={t.none} command={`toolhub call ${name}`} />
            ) : (
              <Fresh of={snapshot}>
                <List name={name} page={snapshot.value} />
              </Fresh>
            )
          }
        </Loaded>
      </section>
      <Refusals tool={name} />
    </>
  );
}

/** The newest page, and the older ones that were asked for. */
function List({ name, page }: { name: string; page: Page<Call> }) {
  const t = texts.value.calls;
  const [older, setOlder] = useState<{ items: Call[]; next: string | null } | null>(null);
  const [isBusy, setBusy] = useState(false);
  const next = older ? older.next : (page.nextCursor ?? null);
  const more = () => {
    setBusy(true);
    // From now on the first page may grow; the older ones begin where it ended.
    get<Page<Call>>(callsPath(name, next))
      .then((answer) => setOlder({ items: [...(older?.items ?? page.items), ...answer.items], next: answer.nextCursor ?? null }))
      .catch(sayError)
      .finally(() => setBusy(false));
  };
  const seen = new Set(page.items.map(({ id }) => id));
  const all = [...page.items, ...(older?.items ?? []).filter(({ id }) => !seen.has(id))];
  return (
    <>
      <div class="scroll" tabIndex={0} role="group" aria-label={t.title}>
        <table class="calls">
          <thead>
            <tr>
              <th scope="col">{t.started}</th>
              <th scope="col">{t.status}</th>
              <th scope="col">{t.duration}</th>
              <th scope="col">{t.attempts}</th>
              <th scope="col">{t.thread}</th>
              <th scope="col">{t.caller}</th>
              <th scope="col">{t.error}</th>
            </tr>
          </thead>
          <tbody>
            {all.map((call) => (
              <tr key={call.id}>
                <td>
                  <button type="button" class="link" onClick={() => setQuery({ call: call.id })}>
                    {call.startedAt ? <Time at={call.startedAt} /> : t.notStarted}
                  </button>
                </td>
                <td>
                  <CallBadge status={call.status} />
                </td>
                <td class="num">{call.durationMs != null && duration(call.durationMs)}</td>
                <td class="num">{call.attempts}</td>
                <td>{call.threadId && <Code text={call.threadId} limit={40} />}</td>
                <td>{call.caller && <Raw text={call.caller} limit={40} />}</td>
                <td>{call.error && <Code text={call.error.code} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {next && (
        <button type="button" class="more-button" disabled={isBusy} onClick={more}>
          {t.older}
        </button>
      )}
    </>
  );
}

/** One call with its arguments and what came of it. */
function Chosen({ id }: { id: string }) {
  const t = texts.value.calls;
  const resource = useMemo(() => new Resource<Call>(() => get(`/api/v1/calls/${segment(id)}`), { everyMs: 3_000 }), [id]);
  const call = useResource(resource).value?.value;
  useEffect(() => document.getElementById("call")?.scrollIntoView({ block: "nearest" }), [id]);
  return (
    <section class="card" id="call" aria-label={t.one}>
      <div class="card-head">
        <h2>
          {t.one} <Code text={id} />
        </h2>
        <button type="button" class="link" onClick={() => setQuery({ call: null })}>
          {texts.value.common.close}
        </button>
      </div>
      {!call && (resource.error.value ? <p class="error-text"><Raw text={resource.error.value.message} /></p> : <Loading />)}
      {call && (
        <>
          <dl class="facts">
            <Row name={t.status}>
              <CallBadge status={call.status} /> {call.durationMs != null && <span class="num">{duration(call.durationMs)}</span>}
            </Row>
            {call.effect && <Row name={t.effect}>{t.effects[call.effect]}</Row>}
            {call.queuedMs != null && <Row name={t.queued}>{duration(call.queuedMs)}</Row>}
            {call.error && (
              <Row name={t.error}>
                <Code text={call.error.code} /> <Raw text={call.error.detail} limit={2000} />
              </Row>
            )}
          </dl>
          <h3>{t.arguments}</h3>
          <RawBlock text={pretty(call.arguments)} label={t.arguments} />
          {call.output !== undefined && (
            <>
              <h3>{t.output}</h3>
              <RawBlock text={valueText(call.output)} label={t.output} />
            </>
          )}
        </>
      )}
    </section>
  );
}
