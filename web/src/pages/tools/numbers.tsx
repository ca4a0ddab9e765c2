// The numbers of one tool since the server started.

import { useMemo } from "preact/hooks";
import { get, segment } from "../../api/client.ts";
import type { Tool, ToolStats } from "../../api/types.ts";
import { duration, number, percent } from "../../base/format.ts";
import { Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code } from "../../ui/raw.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Row } from "./why.tsx";

export function Numbers({ tool }: { tool: Tool }) {
  const t = texts.value.numbers;
  const stats = useMemo(() => new Resource<ToolStats>(() => get(`/api/v1/tools/${segment(tool.name)}/stats`), { everyMs: 5_000 }), [tool.name]);
  useResource(stats);
  return (
    <section class="card" aria-labelledby="numbers">
      <h2 id="numbers">{t.title}</h2>
      <Loaded of={stats}>{(snapshot) => <Table stats={snapshot.value} name={tool.name} />}</Loaded>
    </section>
  );
}

function Table({ stats, name }: { stats: ToolStats; name: string }) {
  const t = texts.value.numbers;
  const sum = (counts: Record<string, number>) => Object.values(counts).reduce((total, count) => total + count, 0);
  if (stats.calls === 0 && sum(stats.refusals) === 0 && stats.inFlight + stats.queued === 0) {
    return <Empty title={t.neverCalled} command={`toolhub call ${name}`} />;
  }
  const list = (counts: Record<string, number>) =>
    Object.entries(counts)
      .sort(([, a], [, b]) => b - a)
      .map(([code, count]) => (
        <span key={code} class="spaced">
          <Code text={code} /> <span class="num">{number(count)}</span>
        </span>
      ));
  const errors = sum(stats.errors);
  const { latency } = stats;
  return (
    <dl class="facts">
      <Row name={t.calls}>
        <span class="num">{number(stats.calls)}</span>
      </Row>
      <Row name={t.errors}>
        <span class={errors > 0 ? "num bad" : "num"}>
          {number(errors)} ({percent(errors, stats.calls)})
        </span>{" "}
        {list(stats.errors)}
      </Row>
      {latency.count > 0 && (
        <Row name={t.latency}>
          {([["p50", latency.p50Ms], ["p95", latency.p95Ms], ["p99", latency.p99Ms], ["max", latency.maxMs]] as const).map(([name, value]) => (
            <span key={name} class="spaced num" data-raw>
              <span class="quiet">{name}</span> {duration(value)}
            </span>
          ))}
        </Row>
      )}
      {sum(stats.refusals) > 0 && <Row name={t.refusals}>{list(stats.refusals)}</Row>}
      <Row name={t.now}>
        {t.inFlight(stats.inFlight)} · {t.queued(stats.queued)}
        {stats.stuck > 0 && <strong class="bad"> · {t.stuck(stats.stuck)}</strong>}
      </Row>
      {stats.retries > 0 && <Row name={t.retries}>{number(stats.retries)}</Row>}
      {stats.rateLimited > 0 && <Row name={t.rateLimited}>{number(stats.rateLimited)}</Row>}
      {stats.cacheHits + stats.cacheMisses > 0 && <Row name={t.cache}>{percent(stats.cacheHits, stats.cacheHits + stats.cacheMisses)}</Row>}
    </dl>
  );
}
