// Calls, latency and load over time, of all tools or of one. The numbers are of one node, and that is said.

import { useMemo } from "preact/hooks";
import type { CallSeries } from "../../api/types.ts";
import { duration, number } from "../../base/format.ts";
import { nodes } from "../../data/facts.ts";
import { useResource, type Snapshot } from "../../data/resource.ts";
import { highestOf, type Lines, linesOf, seriesOf, type Values, type Window, windows } from "../../data/series.ts";
import { texts } from "../../i18n/index.ts";
import { Chart, type ChartLine } from "../../ui/chart.tsx";
import { Code } from "../../ui/raw.tsx";
import { route, setQuery } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";

export function Charts({ tool }: { tool: string }) {
  const t = texts.value.charts;
  const asked = route.value.query.get("window");
  const window: Window = windows.find((name) => name === asked) ?? "15m";
  const resource = useMemo(() => seriesOf(tool, window), [tool, window]);
  useResource(resource);
  useResource(nodes);
  return (
    <section class="card" aria-labelledby="charts">
      <div class="card-head">
        <h2 id="charts">{t.title}</h2>
        <div class="segmented" role="group" aria-label={t.window}>
          {windows.map((name) => (
            <button key={name} type="button" aria-pressed={name === window} onClick={() => setQuery({ window: name === "15m" ? null : name })}>
              {t.windows[name]}
            </button>
          ))}
        </div>
      </div>
      <Loaded of={resource}>
        {(snapshot) => (
          <>
            <Drawn snapshot={snapshot} isTool={tool !== ""} />
            <p class="quiet chart-note">
              {t.node} <Code text={nodeName(snapshot.value.node)} limit={80} />{t.since}
            </p>
          </>
        )}
      </Loaded>
    </section>
  );
}

const nodeName = (id: string): string => nodes.data.value?.value.find((node) => node.id === id)?.name ?? id;

interface Kind extends Pick<ChartLine, "colour" | "dash"> {
  name: Values;
  /** Shown only if there is something to see. */
  isRare: boolean;
}

const outcomes: readonly Kind[] = [
  { name: "succeeded", colour: "good", dash: [], isRare: false },
  { name: "failed", colour: "bad", dash: [6, 3], isRare: false },
  { name: "refused", colour: "warn", dash: [2, 3], isRare: false },
  { name: "cancelled", colour: "off", dash: [8, 3, 2, 3], isRare: true },
  { name: "cacheHits", colour: "info", dash: [1, 2], isRare: true },
];
const loads: readonly Kind[] = [
  { name: "inFlight", colour: "accent", dash: [], isRare: false },
  { name: "queued", colour: "warn", dash: [6, 3], isRare: false },
];
const quantiles: readonly Kind[] = [
  { name: "p50Ms", colour: "accent", dash: [], isRare: false },
  { name: "p95Ms", colour: "info", dash: [6, 3], isRare: false },
  { name: "p99Ms", colour: "bad", dash: [2, 3], isRare: false },
];

function Drawn({ snapshot, isTool }: { snapshot: Snapshot<CallSeries>; isTool: boolean }) {
  const t = texts.value.charts;
  const drawn = useMemo(() => {
    const lines = linesOf(snapshot.value, isTool, isTool ? 60_000 : 1_000);
    const chosen = (kinds: readonly Kind[]): ChartLine[] =>
      kinds
        .map(({ name, isRare, ...look }) => ({ ...look, isRare, name: t.lines[name], values: lines.of(name) }))
        .filter(({ isRare, values }) => !isRare || highestOf(values) > 0);
    return { lines, outcomes: chosen(outcomes), loads: chosen(loads), quantiles: chosen(quantiles) };
  }, [snapshot.value, isTool, t]);
  const { at } = drawn.lines;
  const isEmpty = drawn.outcomes.every(({ values }) => highestOf(values) === 0);
  const calls = isTool ? t.callsPerMinute : t.callsPerSecond;
  return (
    <>
      {isEmpty && <p class="quiet">{t.none}</p>}
      <div class="charts">
        <Chart title={calls} summary={summaryOf(calls, drawn.lines, "succeeded", number)} at={at} lines={drawn.outcomes} format={number} />
        <Chart title={t.latency} summary={summaryOf(t.latency, drawn.lines, "p95Ms", duration)} at={at} lines={drawn.quantiles} format={duration} />
        <Chart title={t.load} summary={summaryOf(t.load, drawn.lines, "inFlight", number)} at={at} lines={drawn.loads} format={number} />
      </div>
    </>
  );
}

function summaryOf(title: string, lines: Lines, name: Values, format: (value: number) => string): string {
  const values = lines.of(name);
  const last = values.at(-1) ?? null;
  return texts.value.charts.summary(title, last === null ? "–" : format(last), format(highestOf(values)));
}
