// A long list that is read page by page.

import type { ComponentChildren } from "preact";
import type { Page } from "../api/types.ts";
import { PagedResource, type Rows } from "../data/paged.ts";
import { type Resource, useResource } from "../data/resource.ts";
import { texts } from "../i18n/index.ts";
import { ActButton } from "./button.tsx";
import { RowList, type RowListProps } from "./row-list.tsx";
import { Loaded } from "./state.tsx";
import { Time } from "./time.tsx";

interface Props<T extends { id: string }> extends Omit<RowListProps<T>, "items"> {
  /** Read again as it changes; a paged one reads older rows on demand. */
  newest: Resource<Page<T>> | PagedResource<T>;
  olderText?: string;
  fits?: (item: T) => boolean;
  empty: ComponentChildren;
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
