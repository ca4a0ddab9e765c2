// The list of runs, newest first, of all threads or of one.

import { useMemo } from "preact/hooks";
import type { Run } from "../../api/types.ts";
import { duration, number } from "../../base/format.ts";
import { newestRuns, runMs, type RunFilter } from "../../data/runs.ts";
import { texts } from "../../i18n/index.ts";
import type { Column } from "../../ui/long-list.tsx";
import { PagedList } from "../../ui/paged-list.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty } from "../../ui/state.tsx";
import { RunBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";

export function RunList({ filter, threadId }: { filter: RunFilter; threadId: string }) {
  const t = texts.value.runs;
  return (
    <PagedList
      label={t.title}
      class="run-list"
      newest={useMemo(() => newestRuns(threadId, filter), [threadId, filter])}
      olderText={t.older}
      empty={filter ? <Empty title={t.noMatch} /> : <Empty title={t.none} text={t.noneText} command="toolhub chat" />}
      columns={columns()}
      href={({ id }) => address.run(id)}
    />
  );
}

function columns(): Column<Run>[] {
  const [t, c] = [texts.value.runs, texts.value.calls];
  return [
    { name: "started", title: c.started, cell: (run) => <a href={address.run(run.id)}><Time at={run.startedAt} /></a> },
    { name: "status", title: c.status, cell: ({ status }) => <RunBadge status={status} /> },
    { name: "thread", title: c.thread, cell: ({ threadId }) => <a href={address.thread(threadId)}><Raw text={threadId} limit={128} /></a> },
    { name: "agent", title: t.agent, cell: ({ agent }) => <Raw text={agent} limit={64} /> },
    { name: "steps", title: t.steps, cell: ({ steps }) => <span class="num">{steps}</span> },
    { name: "calls", title: c.list, cell: ({ calls }) => <span class="num">{calls.length}</span> },
    { name: "tokens", title: t.tokens, cell: ({ usage }) => <span class="num">{number(usage.inputTokens + usage.outputTokens)}</span> },
    { name: "duration", title: c.duration, cell: (run) => <span class="num">{duration(runMs(run))}</span> },
    { name: "error", title: c.error, cell: ({ error }) => error && <Code text={error.code} /> },
  ];
}
