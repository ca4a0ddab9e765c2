// The row of a list that is chosen with j and k and opened with Enter.

import { useState } from "preact/hooks";
import { useKeys } from "./keyboard.ts";

/** The index of the chosen row, or -1. By its key: the row stays chosen when others come before it or the order changes. */
export function useSelection<T>(items: readonly T[], keyOf: (item: T) => string, open: (item: T) => void): number {
  const [chosen, choose] = useState<string | null>(null);
  const selected = chosen === null ? -1 : items.findIndex((item) => keyOf(item) === chosen);
  const move = (step: number) => {
    const next = items[Math.max(0, Math.min(items.length - 1, selected + step))];
    choose(next === undefined ? null : keyOf(next));
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: ({ target }) => {
      const item = items[selected];
      if (target instanceof HTMLAnchorElement || target instanceof HTMLButtonElement) target.click();
      else if (item !== undefined) open(item);
      else if (target instanceof HTMLElement) target.click();
    },
  });
  return selected;
}
