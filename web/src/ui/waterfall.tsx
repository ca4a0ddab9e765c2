// Steps as bars over a common time, of which only those in view are in the document.
//
// A bar says when and how long; what it was is said by the words and the time beside it.

import type { ComponentChildren } from "preact";
import { duration } from "../base/format.ts";
import { texts } from "../i18n/index.ts";
import { type Column, LongList } from "./long-list.tsx";

/** `wait` is drawn thin, because nothing was done. */
export type PartKind = "model" | "work" | "wait" | "failed";

export interface Part {
  kind: PartKind;
  /** Milliseconds since the beginning of the whole. */
  from: number;
  to: number;
}

export interface WaterfallRow {
  name: ComponentChildren;
  parts: readonly Part[];
  /** A word about the end, for example an error. */
  note?: ComponentChildren;
  /** Belongs to the step above. */
  isInner?: boolean;
}

interface Props<T> {
  label: string;
  items: readonly T[];
  keyOf: (item: T) => string;
  /** Asked only for those in view. */
  rowOf: (item: T) => WaterfallRow;
  totalMs: number;
}

export function Waterfall<T>({ label, items, keyOf, rowOf, totalMs }: Props<T>) {
  const t = texts.value.runs;
  const columns: Column<T>[] = [
    {
      name: "step",
      title: t.step,
      cell: (item) => {
        const { isInner, name } = rowOf(item);
        return <span class={isInner ? "inner" : ""}>{name}</span>;
      },
    },
    { name: "bar", title: <span class="scale"><span data-raw>0</span><span data-raw>{duration(totalMs)}</span></span>, cell: (item) => <Bar parts={rowOf(item).parts} total={totalMs} /> },
    { name: "time", title: t.time, cell: (item) => <span class="num">{duration(spanOf(rowOf(item).parts))}</span> },
    { name: "note", title: t.note, cell: (item) => rowOf(item).note },
  ];
  return <LongList label={label} class="waterfall" items={items} columns={columns} keyOf={keyOf} selected={-1} />;
}

function spanOf(parts: readonly Part[]): number {
  return Math.max(0, (parts.at(-1)?.to ?? 0) - (parts[0]?.from ?? 0));
}

const width = 1000;

function Bar({ parts, total }: { parts: readonly Part[]; total: number }) {
  const x = (time: number) => (Math.min(Math.max(time, 0), total) / Math.max(total, 1e-6)) * width;
  return (
    <svg class="step-bars" viewBox={`0 0 ${width} 16`} preserveAspectRatio="none" aria-hidden="true">
      {parts.map(({ kind, from, to }, index) => {
        // A step of no time is still seen, and stays inside.
        const wide = Math.max(x(to) - x(from), 3);
        const [top, height] = kind === "wait" ? [6.5, 3] : [1, 14];
        return <rect key={index} class={kind} x={Math.min(x(from), width - wide).toFixed(1)} width={wide.toFixed(1)} y={top} height={height} />;
      })}
    </svg>
  );
}
