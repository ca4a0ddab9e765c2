// Scrolls a row of links that is wider than the page, so that the current one is seen.

import { useEffect, useRef } from "preact/hooks";

export function useCurrentInView<T extends HTMLElement>(current: string) {
  const row = useRef<T>(null);
  useEffect(() => {
    const link = row.current?.querySelector("[aria-current]")?.getBoundingClientRect();
    const shown = row.current?.getBoundingClientRect();
    if (link && shown) row.current!.scrollLeft += link.left + link.width / 2 - (shown.left + shown.width / 2);
  }, [current]);
  return row;
}
