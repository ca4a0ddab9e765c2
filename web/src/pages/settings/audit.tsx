// The audit log: changes and refused requests, the newest first.

import { useMemo, useState } from "preact/hooks";
import type { AuditEntry } from "../../api/types.ts";
import { rank } from "../../base/match.ts";
import { spans } from "../../data/calls.ts";
import { useResource } from "../../data/resource.ts";
import { auditOf } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { Fresh } from "../../ui/fresh.tsx";
import { type Column, LongList } from "../../ui/long-list.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { route, setQuery } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

const pageSize = 500;

export function Audit() {
  const t = texts.value.settings;
  const { query } = route.value;
  const since = query.get("since") ?? "";
  const [limit, setLimit] = useState(pageSize);
  return (
    <>
      <div class="filters" role="search">
        <input type="search" aria-label={t.search} placeholder={t.search} value={query.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <select aria-label={t.when} value={since} onChange={(event) => setQuery({ since: event.currentTarget.value })}>
          <option value="">{texts.value.calls.anyTime}</option>
          {Object.keys(spans).map((span) => (
            <option key={span} value={span}>
              {texts.value.calls.lastTime(span)}
            </option>
          ))}
        </select>
      </div>
      <Entries key={`${since} ${limit}`} since={since} limit={limit} more={() => setLimit(limit + pageSize)} />
    </>
  );
}

function Entries({ since, limit, more }: { since: string; limit: number; more: () => void }) {
  const t = texts.value.settings;
  const resource = useMemo(() => auditOf(since, limit), []);
  useResource(resource);
  const { query } = route.value;
  const [words, act] = [query.get("q") ?? "", query.get("act") ?? ""];
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const all = snapshot.value;
        const acts = [...new Set([...all.map((entry) => entry.act), act])].filter(Boolean).sort();
        const found = all.filter((entry) => (!act || entry.act === act) && rank(words, `${entry.act} ${entry.who ?? ""} ${entry.method} ${entry.path} ${entry.from ?? ""} ${entry.status} ${entry.request ?? ""}`) !== null);
        return (
          <Fresh of={snapshot}>
            <select aria-label={t.act} value={act} onChange={(event) => setQuery({ act: event.currentTarget.value })}>
              <option value="">{t.anyAct}</option>
              {acts.map((name) => (
                <option key={name} value={name} data-raw>
                  {name}
                </option>
              ))}
            </select>
            {found.length > 0 ? (
              <LongList label={t.audit} class="audit-list" items={found} columns={columns()} keyOf={({ id }) => id} selected={-1} />
            ) : all.length > 0 ? (
              <Empty title={t.noMatch} />
            ) : (
              <Empty title={t.noAudit} text={t.noAuditText} />
            )}
            {all.length >= limit && (
              <div class="list-end">
                <span class="quiet">{t.newest(limit)}</span> <button type="button" onClick={more}>{t.older}</button>
              </div>
            )}
          </Fresh>
        );
      }}
    </Loaded>
  );
}

function columns(): Column<AuditEntry>[] {
  const t = texts.value.settings;
  return [
    { name: "when", title: t.when, cell: ({ at }) => <Time at={at} /> },
    { name: "act", title: t.act, cell: ({ act, notKept }) => (
      <>
        {act === "denied" ? <span class="bad">{t.denied}</span> : <Code text={act} limit={64} />}
        {notKept ? <span class="quiet" title={t.dropped(notKept)}> +{notKept}</span> : null}
      </>
    ) },
    { name: "who", title: t.who, cell: ({ who }) => <Raw text={who ?? "–"} limit={128} /> },
    { name: "path", title: t.request, cell: ({ method, path, request }) => <span title={request ?? undefined} data-raw><Raw text={`${method} ${path}`} limit={300} /></span> },
    { name: "status", title: t.status, cell: ({ status }) => <span class={status < 400 ? "num" : "num bad"}>{status}</span> },
    { name: "from", title: t.from, cell: ({ from }) => from && <Raw text={from} limit={64} /> },
  ];
}
