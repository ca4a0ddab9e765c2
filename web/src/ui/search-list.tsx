// A list from the server that is searched by the words in the address.

import type { ComponentChildren } from "preact";
import { rank } from "../base/match.ts";
import { type Resource, useResource } from "../data/resource.ts";
import { texts } from "../i18n/index.ts";
import { Fresh } from "./fresh.tsx";
import type { Column } from "./long-list.tsx";
import { route, setQuery } from "./router.ts";
import { SelectList } from "./select-list.tsx";
import { Empty, Loaded } from "./state.tsx";

const words = (): string => route.value.query.get("q") ?? "";

export function SearchField() {
  const label = texts.value.settings.search;
  return <input type="search" aria-label={label} placeholder={label} value={words()} spellcheck={false} onInput={(event) => setQuery({ q: event.currentTarget.value })} />;
}

interface Props<T> {
  of: Resource<T[]>;
  label: string;
  class: string;
  columns: readonly Column<T>[];
  keyOf: (item: T) => string;
  /** What the words are looked for in; null for an item that is not shown. */
  textOf: (item: T) => string | null;
  open: (item: T) => void;
  /** Instead of a list that has nothing. */
  empty?: ComponentChildren;
  /** Behind the list. */
  end?: (items: readonly T[]) => ComponentChildren;
}

export function SearchList<T>({ of, textOf, empty, end, ...list }: Props<T>) {
  useResource(of);
  return (
    <Loaded of={of}>
      {(snapshot) => {
        const items = snapshot.value;
        const found = items.filter((item) => {
          const text = textOf(item);
          return text !== null && rank(words(), text) !== null;
        });
        return (
          <Fresh of={snapshot}>
            {found.length > 0 ? <SelectList items={found} {...list} /> : ((items.length === 0 && empty) || <Empty title={texts.value.settings.noMatch} />)}
            {end?.(items)}
          </Fresh>
        );
      }}
    </Loaded>
  );
}
