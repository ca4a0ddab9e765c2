// A table of rows of one height, of which only those in view are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { isReturned } from "./router.ts";
import { windowOf } from "./window.ts";

export interface Column<T> {
  name: string;
  title: ComponentChildren;
  /** What a screen reader says about the order. */
  sort?: "ascending" | "descending" | undefined;
  cell: (item: T) => ComponentChildren;
  /** What a dialog shows that has room for more than the cell. */
  uncut?: (item: T) => ComponentChildren;
  /** Its cells are buttons, which a dialog about the row leaves out. */
  isAction?: boolean;
}

interface Props<T> {
  label: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (item: T) => string;
  selected: number;
  class: string;
  /** How high a row is, where it is not as high as in other lists. */
  row?: number;
}

/** How far lists were scrolled, by their address, for a person who comes back to it. */
const positions = new Map<string, number>();

/** Rows are this high; on a narrow screen they have two lines. The style sheet says the same. */
const rowHeight = (): number => (matchMedia("(max-width: 720px)").matches ? 60 : 36);

export function LongList<T>({ label, items, columns, keyOf, selected, class: className, row = rowHeight() }: Props<T>) {
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ scrolled: 0, height: 800 });
  const [address] = useState(() => `${location.pathname}${location.search} ${className}`);
  const measure = () => {
    const element = frame.current;
    if (!element) return;
    positions.set(address, element.scrollTop);
    setView({ scrolled: element.scrollTop, height: element.clientHeight });
  };
  useEffect(() => {
    if (frame.current && isReturned()) frame.current.scrollTop = positions.get(address) ?? 0;
    measure();
    const observer = new ResizeObserver(measure);
    if (frame.current) observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = frame.current;
    if (!element || selected < 0) return;
    const top = selected * row;
    // The head of the table covers the first rows of the frame.
    const head = 36;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + row + head > element.scrollTop + element.clientHeight) element.scrollTop = top + row + head - element.clientHeight;
  }, [selected]);
  const { from, to, before, after } = windowOf(items.length, row, view.scrolled, view.height);
  return (
    <div ref={frame} class={`long-list ${className}`} onScroll={measure} tabIndex={0} role="group" aria-label={label}>
      <div role="table" aria-label={label} aria-rowcount={items.length + 1}>
        <div role="rowgroup" class="long-head">
          <div role="row" class="long-row" aria-rowindex={1}>
            {columns.map((column) => (
              <div key={column.name} role="columnheader" class={`c-${column.name}`} aria-sort={column.sort}>
                {column.title}
              </div>
            ))}
          </div>
        </div>
        <div role="rowgroup">
          <Space height={before} />
          {items.slice(from, to).map((item, index) => (
            <div key={keyOf(item)} role="row" class={from + index === selected ? "long-row selected" : "long-row"} aria-rowindex={from + index + 2}>
              {columns.map((column) => (
                <div key={column.name} role="cell" class={`c-${column.name}`}>
                  {column.cell(item)}
                </div>
              ))}
            </div>
          ))}
          <Space height={after} />
        </div>
      </div>
    </div>
  );
}

/** The room of the rows that are not in the document. The height is set through the CSSOM: style attributes are forbidden. */
function Space({ height }: { height: number }) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (element.current) element.current.style.height = `${height}px`;
  });
  return <div ref={element} role="presentation" />;
}
