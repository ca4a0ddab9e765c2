// A long list that is read page by page. Its rows are chosen with j and k and opened with Enter.

import type { ComponentChildren } from "preact";
import type { Page } from "../api/types.ts";
import { PagedResource, type Rows } from "../data/paged.ts";
import { type Resource, useResource } from "../data/resource.ts";
import { texts } from "../i18n/index.ts";
import { ActButton } from "./button.tsx";
import { type Column, LongList } from "./long-list.tsx";
import { go } from "./router.ts";
import { useSelection } from "./selection.ts";
import { Loaded } from "./state.tsx";
import { Time } from "./time.tsx";

interface Props<T extends { id: string }> {
  label: string;
  class: string;
  /** Read again as it changes; a paged one reads older rows on demand. */
  newest: Resource<Page<T>> | PagedResource<T>;
  olderText?: string;
  fits?: (item: T) => boolean;
  empty: ComponentChildren;
  columns: readonly Column<T>[];
  href?: (item: T) => string;
}

export function PagedList<T extends { id: string }>({ newest, olderText, fits = () => true, empty, ...list }: Props<T>) {
  const t = texts.value.common;
  useResource<Page<T>>(newest);
  return (
    <Loaded<Page<T>> of={newest}>
      {({ value }) => {
        const items = value.items.filter(fits);
        const { live, restAt } = value as Rows<T>;
        return (
          <>
            {items.length > 0 ? <RowList {...list} items={items} /> : empty}
            {restAt && (
              <p class="as-of">
                {t.behind(live)} <Time at={restAt} />
              </p>
            )}
            {newest instanceof PagedResource && value.nextCursor && (
              <div class="list-end">
                <ActButton act={() => newest.more(fits)}>{olderText}</ActButton>
              </div>
            )}
          </>
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

const idOf = ({ id }: { id: string }): string => id;

function RowList<T extends { id: string }>({ href, ...list }: RowsProps<T>) {
  const { items } = list;
  const selected = useSelection(items, idOf, (item) => href && go(href(item)));
  return <LongList {...list} keyOf={idOf} selected={selected} />;
}
