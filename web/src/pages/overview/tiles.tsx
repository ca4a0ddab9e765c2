// The numbers of this moment, each with the line of the last minute.

import type { ComponentChildren } from "preact";
import { duration, number, percent } from "../../base/format.ts";
import { pending, pendingCount } from "../../data/approvals.ts";
import { info, nodes } from "../../data/facts.ts";
import { type Snapshot, isOld, useResource } from "../../data/resource.ts";
import { isTickOld, lastTick, type Tick, ticks } from "../../data/ticks.ts";
import { texts } from "../../i18n/index.ts";
import { AsOf } from "../../ui/fresh.tsx";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Spark } from "../../ui/spark.tsx";

export function Tiles() {
  const t = texts.value.overview;
  useResource(info);
  useResource(nodes);
  const list = nodes.data.value?.value ?? [];
  const own = list.find(({ isSelf }) => isSelf);
  const tick = lastTick.value;
  const facts = info.data.value;
  // Before the first second has passed there is no tick.
  const now = tick?.value ?? (facts && { inFlight: facts.value.running, queued: facts.value.queued });
  const line = (value: (tick: Tick) => number | null) => ticks.value.map((one) => (one ? value(one) : null));
  return (
    <>
      <div class="tiles">
        <Tile title={t.callsPerSecond} of={tick} value={tick ? number(tick.value.calls) : "–"} line={line(({ calls }) => calls)} />
        <Tile
          title={t.errors}
          of={tick}
          value={tick ? percent(tick.value.errors, tick.value.calls) : "–"}
          line={line(({ calls, errors }) => (calls > 0 ? errors / calls : 0))}
          tone={tick && tick.value.errors > 0 ? "bad" : ""}
        />
        <Tile title={t.p95} of={tick} value={tick?.value.p95Ms != null ? duration(tick.value.p95Ms) : "–"} line={line(({ p95Ms }) => p95Ms)} />
        <Tile title={t.inFlight} of={tick ?? facts} value={now ? number(now.inFlight) : "–"} line={line(({ inFlight }) => inFlight)} />
        <Tile title={t.queued} of={tick ?? facts} value={now ? number(now.queued) : "–"} line={line(({ queued }) => queued)} />
        <Tile
          title={t.approvalsWaiting}
          of={pending.data.value}
          value={pending.data.value ? number(pendingCount.value) : "–"}
          tone={pendingCount.value > 0 ? "warn" : ""}
          href={address.approvals()}
        />
      </div>
      {list.length > 1 && own && <p class="quiet">{t.ofNode} <Code text={own.name} limit={80} /></p>}
    </>
  );
}

interface TileProps {
  title: string;
  of: Snapshot<unknown> | null;
  value: string;
  line?: readonly (number | null)[];
  tone?: string;
  href?: string;
}

function Tile({ title, of, value, line, tone = "", href }: TileProps) {
  const old = of !== null && of === lastTick.value ? isTickOld() : isOld(of);
  const content: ComponentChildren = (
    <>
      <span class="tile-title">{title}</span>
      <span class={`tile-value num ${tone}`}>{value}</span>
      {old && of ? <AsOf of={{ at: of.at }} /> : line && <Spark values={line} />}
    </>
  );
  const className = old ? "tile old" : "tile";
  return href ? (
    <a class={className} href={href}>
      {content}
    </a>
  ) : (
    <div class={className}>{content}</div>
  );
}
