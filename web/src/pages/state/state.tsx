// Contexts of tool state, by thread and tool.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { ContextInfo } from "../../api/types.ts";
import { bytes } from "../../base/format.ts";
import { rank } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { contextsOf, maxContexts, stateKinds } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { Fresh } from "../../ui/fresh.tsx";
import { Icon } from "../../ui/icon.tsx";
import { useKeys } from "../../ui/keyboard.ts";
import { type Column, LongList } from "../../ui/long-list.tsx";
import { NeedsScope } from "../../ui/needs-scope.tsx";
import { Failure } from "../../ui/notice.tsx";
import { Raw } from "../../ui/raw.tsx";
import { address, go, route, setQuery } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

export function StatePage() {
  const t = texts.value;
  const { query } = route.value;
  const [thread, tool] = [query.get("thread") ?? "", query.get("tool") ?? ""];
  return (
    <section class="page fill">
      <h1>{t.contexts.title}</h1>
      <NeedsScope scope="state:read">
        {() => (
          <>
            <div class="filters" role="search">
              <Filter name="q" type="search" label={t.contexts.search} />
              <Filter name="thread" type="text" label={t.contexts.thread} />
              <Filter name="tool" type="text" label={t.contexts.tool} />
            </div>
            <Contexts key={`${thread} ${tool}`} thread={thread} tool={tool} />
          </>
        )}
      </NeedsScope>
    </section>
  );
}

/** A search counts while it is typed; a name counts when it is whole. */
function Filter({ name, type, label }: { name: string; type: "search" | "text"; label: string }) {
  const value = route.value.query.get(name) ?? "";
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const set = (text: string) => setQuery({ [name]: text.trim() });
  return (
    <input
      type={type}
      name={name}
      class={type === "text" ? "filter-text" : ""}
      aria-label={label}
      placeholder={label}
      spellcheck={false}
      autocomplete="off"
      list={undefined}
      value={typed}
      onInput={(event) => (setTyped(event.currentTarget.value), type === "search" && set(event.currentTarget.value))}
      onChange={(event) => set(event.currentTarget.value)}
    />
  );
}

function Contexts({ thread, tool }: { thread: string; tool: string }) {
  const t = texts.value.contexts;
  const resource = useMemo(() => contextsOf(thread, tool), []);
  useResource(resource);
  const error = resource.error.value;
  const words = route.value.query.get("q") ?? "";
  if (error && error.status >= 400 && error.status < 500 && error.status !== 401) {
    return (
      <p class="callout bad" role="alert">
        <Icon name="warning" /> <Failure error={error} />
      </p>
    );
  }
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const all = snapshot.value;
        const found = all.filter(({ id }) => rank(words, id) !== null);
        return (
          <Fresh of={snapshot}>
            {all.length >= maxContexts && <p class="quiet">{t.first(maxContexts)}</p>}
            {found.length > 0 ? (
              <Rows items={found} />
            ) : words || thread || tool ? (
              <Empty title={t.noMatch} />
            ) : (
              <Empty title={t.none} text={t.noneText} command="toolhub state set demo/cart tea:=1" />
            )}
          </Fresh>
        );
      }}
    </Loaded>
  );
}

function Rows({ items }: { items: readonly ContextInfo[] }) {
  const t = texts.value.contexts;
  const [selectedId, select] = useState("");
  const selected = items.findIndex(({ id }) => id === selectedId);
  const move = (step: number) => select(items[Math.max(0, Math.min(items.length - 1, selected + step))]?.id ?? "");
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: (event) => {
      if (event.target instanceof HTMLAnchorElement || event.target instanceof HTMLButtonElement) event.target.click();
      else if (items[selected]) go(address.context(selectedId));
    },
  });
  const columns: Column<ContextInfo>[] = [
    { name: "name", title: t.name, cell: (context) => <a href={address.context(context.id)}><Raw text={context.toolType} limit={128} /></a> },
    { name: "thread", title: t.thread, cell: ({ threadId }) => (threadId ? <Raw text={threadId} limit={128} /> : <span class="quiet">{t.shared}</span>) },
    {
      name: "kinds",
      title: t.holds,
      cell: ({ kinds }) => stateKinds.filter((kind) => kinds[kind]).map((kind) => (
        <span key={kind} class="tag">{t.kind[kind]}{(kinds[kind]?.version ?? 0) > 0 && ` ${kinds[kind]?.version}`}</span>
      )),
    },
    { name: "size", title: t.size, cell: ({ kinds }) => <span class="num">{bytes(Object.values(kinds).reduce((sum, kind) => sum + kind.bytes, 0))}</span> },
    { name: "updated", title: t.updated, cell: ({ updatedAt }) => <Time at={updatedAt} /> },
  ];
  return <LongList label={t.list} class="context-list" items={items} columns={columns} keyOf={({ id }) => id} selected={selected} />;
}
