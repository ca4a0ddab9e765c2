// The list of threads, the most recently active one first.

import { useMemo } from "preact/hooks";
import type { Thread } from "../../api/types.ts";
import { newestThreads } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import type { Column } from "../../ui/long-list.tsx";
import { PagedList } from "../../ui/paged-list.tsx";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty } from "../../ui/state.tsx";
import { Badge } from "../../ui/status.tsx";
import { Ago, Time } from "../../ui/time.tsx";

export function ThreadList({ q }: { q: string }) {
  const t = texts.value.threads;
  return (
    <PagedList
      label={t.title}
      class="thread-list"
      newest={useMemo(() => newestThreads(q), [q])}
      olderText={t.older}
      empty={q ? <Empty title={t.noMatch} /> : <Empty title={t.none} text={t.noneText} command="toolhub chat" />}
      columns={columns()}
      href={({ id }) => address.thread(id)}
    />
  );
}

function columns(): Column<Thread>[] {
  const [t, c] = [texts.value.threads, texts.value.calls];
  return [
    { name: "thread", title: c.thread, cell: ({ id }) => <a href={address.thread(id)}><Code text={id} limit={128} /></a> },
    {
      name: "open",
      title: t.open,
      cell: ({ openRunId, waitingApprovals }) => (
        <>
          {openRunId && <a href={address.run(openRunId)}><Badge icon="clock" tone="info" word={t.openRun} /></a>}{" "}
          {waitingApprovals > 0 && <Badge icon="question" tone="warn" word={t.approvals(waitingApprovals)} />}
        </>
      ),
    },
    { name: "active", title: t.lastActive, cell: ({ lastActiveAt }) => <Ago at={lastActiveAt} /> },
    { name: "calls", title: c.list, cell: ({ calls }) => <span class="num">{calls}</span> },
    { name: "created", title: t.created, cell: ({ createdAt }) => <Time at={createdAt} /> },
  ];
}
