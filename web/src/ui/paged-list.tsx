// A long list that is read page by page. Its rows are chosen with j and k and opened with Enter.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Page } from "../api/types.ts";
import { type Resource, useResource } from "../data/resource.ts";
import { ActButton } from "./button.tsx";
import { Fresh } from "./fresh.tsx";
import { useKeys } from "./keyboard.ts";
import { type Column, LongList } from "./long-list.tsx";
import { go } from "./router.ts";
import { Loaded } from "./state.tsx";

interface Props<T> {
  label: string;
  class: string;
  /** The newest ones, read again as they change. */
  newest: Resource<Page<T>>;
  /** Those that are shown and the next older ones. */
  older?: (shown: Page<T>) => Promise<Page<T>>;
  olderText?: string;
  fits?: (item: T) => boolean;
  empty: ComponentChildren;
  columns: readonly Column<T>[];
  href?: (item: T) => string;
}

export function PagedList<T extends { id: string }>({ newest, older, olderText, fits = () => true, empty, ...list }: Props<T>) {
  useResource(newest);
  // Older ones stay as they were when they were asked for.
  const [read, setRead] = useState<Page<T> | null>(null);
  return (
    <Loaded of={newest}>
      {(snapshot) => {
        const first = snapshot.value;
        const fresh = new Set(first.items.map(({ id }) => id));
        const known = read ? { ...read, items: [...first.items, ...read.items.filter(({ id }) => !fresh.has(id))] } : first;
        const items = known.items.filter(fits);
        return (
          <Fresh of={snapshot}>
            {items.length > 0 ? <Rows {...list} items={items} /> : empty}
            {older && known.nextCursor && (
              <div class="list-end">
                <ActButton act={async () => setRead(await older(known))}>{olderText}</ActButton>
              </div>
            )}
          </Fresh>
        );
      }}
    </Loaded>
  );
}

interface RowsProps<T> {
  label: string;
  class: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  href?: (item: T) => string;
}

function Rows<T extends { id: string }>({ href, ...list }: RowsProps<T>) {
  const { items } = list;
  const [chosen, choose] = useState("");
  // By its id: the row stays selected when others come before it.
  const selected = items.findIndex(({ id }) => id === chosen);
  const move = (step: number) => choose(items[Math.max(0, Math.min(items.length - 1, selected + step))]?.id ?? "");
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: (event) => {
      const item = items[selected];
      if (event.target instanceof HTMLAnchorElement || event.target instanceof HTMLButtonElement) event.target.click();
      else if (item && href) go(href(item));
    },
  });
  return <LongList {...list} keyOf={({ id }) => id} selected={selected} />;
}
