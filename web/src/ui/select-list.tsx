// A long list whose rows are chosen with j and k and opened with Enter.

import { useState } from "preact/hooks";
import { useKeys } from "./keyboard.ts";
import { type Column, LongList } from "./long-list.tsx";
import { go } from "./router.ts";

interface Props<T> {
  label: string;
  class: string;
  items: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (item: T) => string;
  href: (item: T) => string;
}

export function SelectList<T>({ href, ...list }: Props<T>) {
  const { items, keyOf } = list;
  const [key, select] = useState("");
  // By its key: the row stays selected when others come before it.
  const selected = items.findIndex((item) => keyOf(item) === key);
  const move = (step: number) => {
    const item = items[Math.max(0, Math.min(items.length - 1, selected + step))];
    if (item) select(keyOf(item));
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: (event) => {
      const item = items[selected];
      if (event.target instanceof HTMLAnchorElement || event.target instanceof HTMLButtonElement) event.target.click();
      else if (item) go(href(item));
    },
  });
  return <LongList {...list} selected={selected} />;
}
