// Contexts of tool state, by thread and tool.

import { useMemo } from "preact/hooks";
import type { ContextInfo } from "../../api/types.ts";
import { bytes } from "../../base/format.ts";
import { contextsOf, maxContexts, stateKinds } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import type { Column } from "../../ui/long-list.tsx";
import { NeedsScope } from "../../ui/needs-scope.tsx";
import { PagedList } from "../../ui/paged-list.tsx";
import { Raw } from "../../ui/raw.tsx";
import { address, route } from "../../ui/router.ts";
import { isSearched, SearchField } from "../../ui/search-field.tsx";
import { Empty } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";
import { TextFilter } from "../calls/filters.tsx";

export function StatePage() {
  const { query } = route.value;
  const [thread, tool] = [query.get("thread") ?? "", query.get("tool") ?? ""];
  return (
    <section class="page fill">
      <h1>{texts.value.nav.state}</h1>
      <NeedsScope scope="state:read">
        {() => (
          <>
            <div class="filters" role="search">
              <SearchField />
              <TextFilter name="thread" value={thread} />
              <TextFilter name="tool" value={tool} />
            </div>
            <Contexts key={`${thread} ${tool}`} thread={thread} tool={tool} />
          </>
        )}
      </NeedsScope>
    </section>
  );
}

function Contexts({ thread, tool }: { thread: string; tool: string }) {
  const t = texts.value.contexts;
  const resource = useMemo(() => contextsOf(thread, tool), []);
  const count = resource.data.value?.value.items.length ?? 0;
  return (
    <>
      {count >= maxContexts && <p class="quiet">{t.first(count)}</p>}
      <PagedList
        label={t.title}
        class="context-list"
        newest={resource}
        fits={({ id }) => isSearched(id)}
        empty={count > 0 || thread || tool ? <Empty title={texts.value.settings.noMatch} /> : <Empty title={t.none} command="toolhub state set demo/cart tea:=1" />}
        columns={columns()}
        href={({ id }) => address.context(id)}
      />
    </>
  );
}

function columns(): Column<ContextInfo>[] {
  const t = texts.value.contexts;
  return [
    { name: "name", title: t.title, cell: (context) => <a href={address.context(context.id)}><Raw text={context.toolType} limit={128} /></a> },
    { name: "of", title: texts.value.calls.thread, cell: ({ threadId }) => (threadId ? <Raw text={threadId} limit={128} /> : <span class="quiet">{t.shared}</span>) },
    {
      name: "kinds",
      title: t.kinds,
      cell: ({ kinds }) => stateKinds.map((kind) => kinds[kind] && <span key={kind} class="tag">{t.kind[kind]} {bytes(kinds[kind].bytes)}</span>),
    },
    { name: "updated", title: t.updated, cell: ({ updatedAt }) => <Time at={updatedAt} /> },
  ];
}
