// The list of threads, the most recently active one first.

import { useMemo, useState } from "preact/hooks";
import type { Page, Thread } from "../../api/types.ts";
import { newestThreads, olderThreads } from "../../data/threads.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Fresh } from "../../ui/fresh.tsx";
import { type Column } from "../../ui/long-list.tsx";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { SelectList } from "../../ui/select-list.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Badge } from "../../ui/status.tsx";
import { Ago, Time } from "../../ui/time.tsx";

export function ThreadList({ q }: { q: string }) {
  const t = texts.value.threads;
  const resource = useMemo(() => newestThreads(q), [q]);
  useResource(resource);
  // Threads behind the first page, as they were when they were asked for.
  const [older, setOlder] = useState<Page<Thread> | null>(null);
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const newest = snapshot.value;
        const fresh = new Set(newest.items.map(({ id }) => id));
        const shown = older ? { ...older, items: [...newest.items, ...older.items.filter(({ id }) => !fresh.has(id))] } : newest;
        if (shown.items.length === 0) return q ? <Empty title={t.noMatch} /> : <Empty title={t.none} text={t.noneText} command="toolhub chat" />;
        return (
          <Fresh of={snapshot}>
            <SelectList label={t.title} class="thread-list" items={shown.items} columns={columns()} keyOf={({ id }) => id} href={({ id }) => address.thread(id)} />
            {shown.nextCursor && (
              <div class="list-end">
                <ActButton act={async () => setOlder(await olderThreads(q, shown))}>{t.older}</ActButton>
              </div>
            )}
          </Fresh>
        );
      }}
    </Loaded>
  );
}

function columns(): Column<Thread>[] {
  const t = texts.value.threads;
  return [
    {
      name: "thread",
      title: t.one,
      cell: ({ id }) => (
        <a href={address.thread(id)}>
          <Code text={id} limit={128} />
        </a>
      ),
    },
    {
      name: "open",
      title: t.open,
      cell: ({ openRunId, waitingApprovals }) => (
        <>
          {openRunId && (
            <a href={address.run(openRunId)}>
              <Badge icon="clock" tone="info" word={t.openRun} />
            </a>
          )}{" "}
          {waitingApprovals > 0 && <Badge icon="question" tone="warn" word={t.approvals(waitingApprovals)} />}
        </>
      ),
    },
    { name: "active", title: t.lastActive, cell: ({ lastActiveAt }) => <Ago at={lastActiveAt} /> },
    { name: "calls", title: texts.value.nav.calls, cell: ({ calls }) => <span class="num">{calls}</span> },
    { name: "created", title: t.created, cell: ({ createdAt }) => <Time at={createdAt} /> },
  ];
}
