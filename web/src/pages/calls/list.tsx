// The list of calls. Live, it is the newest ones as they come; paused, it stays as it is and grows by older ones.

import { useMemo, useState } from "preact/hooks";
import type { Call } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { type CallFilter, countNew, filterQuery, headSize, isFiltered, newestCalls, type Paused, withOlder } from "../../data/calls.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Icon } from "../../ui/icon.tsx";
import { useKeys } from "../../ui/keyboard.ts";
import { type Column, LongList } from "../../ui/long-list.tsx";
import { Failure } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address, go } from "../../ui/router.ts";
import { useSelection } from "../../ui/selection.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { CallBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";

export function CallList({ filter }: { filter: CallFilter }) {
  const resource = useMemo(() => newestCalls(filter), []);
  useResource(resource);
  const [paused, setPaused] = useState<Paused | null>(null);
  // What the filter asks for may be refused later, too: a thread id that is none, for example.
  const error = resource.error.value;
  if (error && error.status >= 400 && error.status < 500 && error.status !== 401) {
    return (
      <p class="callout bad" role="alert">
        <Icon name="warning" /> <Failure error={error} />
      </p>
    );
  }
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const newest = snapshot.value.items;
        const pauseNow = (): Paused => paused ?? { items: newest, next: snapshot.value.nextCursor ?? null, at: snapshot.at };
        return (
          <>
            <Tail paused={paused} newest={newest} toggle={() => setPaused(paused ? null : pauseNow())} />
            <Rows
              filter={filter}
              items={paused?.items ?? newest}
              hasOlder={(paused ? paused.next : (snapshot.value.nextCursor ?? null)) !== null}
              older={async () => setPaused(await withOlder(filter, pauseNow()))}
            />
          </>
        );
      }}
    </Loaded>
  );
}

function Tail({ paused, newest, toggle }: { paused: Paused | null; newest: readonly Call[]; toggle: () => void }) {
  const t = texts.value.calls;
  useKeys({ p: toggle });
  const count = paused ? countNew(paused.items, newest) : 0;
  return (
    <div class="tail">
      <button type="button" aria-pressed={paused !== null} onClick={toggle}>
        <Icon name={paused ? "right" : "pause"} /> {paused ? t.resume : t.pause}
      </button>
      <span class="quiet" role="status">
        {paused ? (
          <>
            {t.paused} · <Time at={paused.at} />
            {count > 0 && <strong class="new-calls"> · {t.newCalls(count < headSize ? String(count) : `${headSize}+`)}</strong>}
          </>
        ) : (
          t.live
        )}
      </span>
    </div>
  );
}

interface RowsProps {
  filter: CallFilter;
  items: readonly Call[];
  hasOlder: boolean;
  older: () => Promise<void>;
}

const idOf = (call: Call): string => call.id;

function Rows({ filter, items, hasOlder, older }: RowsProps) {
  const t = texts.value.calls;
  const query = filterQuery(filter);
  const selected = useSelection(items, idOf, ({ id }) => go(address.call(id, query)));
  const more = hasOlder && <ActButton class="more-button" act={older}>{t.older}</ActButton>;
  if (items.length === 0) {
    if (hasOlder) return <div class="empty"><p class="empty-title">{t.noneYet}</p>{more}</div>;
    return isFiltered(filter) ? <Empty title={t.noMatch} /> : <Empty title={t.none} text={t.noneText} command="toolhub call TOOL" />;
  }
  return (
    <>
      <LongList label={t.list} class="call-list" items={items} columns={columns(query)} keyOf={idOf} selected={selected} />
      <div class="list-end">{more || <p class="quiet">{t.end} <Code text="store.retention.calls" /></p>}</div>
    </>
  );
}

function columns(query: string): Column<Call>[] {
  const t = texts.value.calls;
  return [
    { name: "started", title: t.started, cell: (call) => <Time at={call.startedAt} /> },
    {
      name: "tool",
      title: t.tool,
      cell: (call) => (
        <a href={address.call(call.id, query)}>
          <Raw text={call.tool} limit={80} />
        </a>
      ),
    },
    { name: "status", title: t.status, cell: (call) => <CallBadge status={call.status} /> },
    { name: "duration", title: t.duration, cell: (call) => call.durationMs != null && <span class="num">{duration(call.durationMs)}</span> },
    { name: "attempts", title: t.attempts, cell: (call) => (call.cached ? <span class="quiet">{t.cachedShort}</span> : <span class={(call.attempts ?? 0) > 1 ? "num warn" : "num"}>{call.attempts}</span>) },
    { name: "error", title: t.error, cell: (call) => call.error && <Code text={call.error.code} /> },
    { name: "thread", title: t.thread, cell: (call) => call.threadId && <Raw text={call.threadId} limit={60} /> },
    { name: "caller", title: t.caller, cell: (call) => call.caller && <Raw text={call.caller} limit={60} /> },
  ];
}
