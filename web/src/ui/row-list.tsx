// A long list whose rows are chosen with j and k. Enter goes to the page of a row, or shows the row uncut in a dialog.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Dialog } from "./dialog.tsx";
import { type Column, LongList } from "./long-list.tsx";
import { go } from "./router.ts";
import { useSelection } from "./selection.ts";

export interface RowListProps<T> {
  label: string;
  class: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  /** The page of a row. */
  href?: (item: T) => string;
  /** The title of the dialog that shows a row. The first column then opens it. */
  dialogTitle?: string;
}

/** Rows with a dialog have two lines; the style sheet says the same. */
const dialogRow = 56;
const idOf = ({ id }: { id: string }): string => id;

export function RowList<T extends { id: string }>({ href, dialogTitle, columns, class: className, ...list }: RowListProps<T>) {
  const [opened, open] = useState<T | null>(null);
  const selected = useSelection(list.items, idOf, (item) => (dialogTitle ? open(item) : href && go(href(item))));
  const of = { ...list, keyOf: idOf, selected };
  if (!dialogTitle) return <LongList {...of} class={className} columns={columns} />;
  const [first, ...others] = columns;
  const opener = first && { ...first, cell: (item: T) => <Opener open={() => open(item)}>{first.cell(item)}</Opener> };
  return (
    <>
      <LongList {...of} class={`dialog-list ${className}`} columns={opener ? [opener, ...others] : others} row={dialogRow} />
      {opened && (
        <Dialog title={dialogTitle} close={() => open(null)}>
          <dl class="facts">
            {columns.map(({ name, title, isAction, cell, uncut = cell }) => {
              const value = !isAction && uncut(opened);
              return (
                value && (
                  <div key={name} class="fact">
                    <dt>{title}</dt>
                    <dd>{value}</dd>
                  </div>
                )
              );
            })}
          </dl>
        </Dialog>
      )}
    </>
  );
}

const Opener = ({ open, children }: { open: () => void; children: ComponentChildren }) => (
  <button type="button" class="link" aria-haspopup="dialog" onClick={open}>
    {children}
  </button>
);
