// The list of runs, newest first, of all threads or of one.

import { useMemo, useState } from "preact/hooks";
import type { Page, Run } from "../../api/types.ts";
import { now } from "../../base/clock.ts";
import { duration, number } from "../../base/format.ts";
import { useResource } from "../../data/resource.ts";
import { fits, newestRuns, olderRuns, type RunFilter } from "../../data/runs.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Fresh } from "../../ui/fresh.tsx";
import { type Column } from "../../ui/long-list.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { SelectList } from "../../ui/select-list.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { RunBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";

export function RunList({ filter, threadId }: { filter: RunFilter; threadId: string }) {
  const t = texts.value.runs;
  const resource = useMemo(() => newestRuns(threadId), [threadId]);
  useResource(resource);
  const [older, setOlder] = useState<Page<Run> | null>(null);
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const newest = snapshot.value;
        const fresh = new Set(newest.items.map(({ id }) => id));
        const known = older ? { ...older, items: [...newest.items, ...older.items.filter(({ id }) => !fresh.has(id))] } : newest;
        const shown = known.items.filter((run) => fits(run, filter));
        return (
          <Fresh of={snapshot}>
            {shown.length > 0 ? (
              <SelectList label={t.title} class="run-list" items={shown} columns={columns()} keyOf={({ id }) => id} href={({ id }) => address.run(id)} />
            ) : filter ? (
              <Empty title={t.noMatch} />
            ) : (
              <Empty title={t.none} text={t.noneText} command="toolhub chat" />
            )}
            {known.nextCursor && (
              <div class="list-end">
                <ActButton act={async () => setOlder(await olderRuns(threadId, filter, known))}>{t.older}</ActButton>
              </div>
            )}
          </Fresh>
        );
      }}
    </Loaded>
  );
}

function columns(): Column<Run>[] {
  const [t, c] = [texts.value.runs, texts.value.calls];
  return [
    {
      name: "started",
      title: c.started,
      cell: (run) => (
        <a href={address.run(run.id)}>
          <Time at={run.startedAt} />
        </a>
      ),
    },
    { name: "status", title: c.status, cell: (run) => <RunBadge status={run.status} /> },
    {
      name: "thread",
      title: t.thread,
      cell: (run) => (
        <a href={address.thread(run.threadId)}>
          <Raw text={run.threadId} limit={128} />
        </a>
      ),
    },
    { name: "agent", title: t.agent, cell: (run) => <Raw text={run.agent} limit={64} /> },
    { name: "steps", title: t.steps, cell: (run) => <span class="num">{run.steps}</span> },
    { name: "calls", title: t.calls, cell: (run) => <span class="num">{run.calls.length}</span> },
    { name: "tokens", title: t.tokens, cell: (run) => <span class="num">{number(run.usage.inputTokens + run.usage.outputTokens)}</span> },
    { name: "duration", title: c.duration, cell: (run) => <span class="num">{duration(Math.max(0, (run.endedAt ? Date.parse(run.endedAt) : now.value) - Date.parse(run.startedAt)))}</span> },
    { name: "error", title: c.error, cell: (run) => run.error && <Code text={run.error.code} /> },
  ];
}
