// The list of all tools.

import { useMemo } from "preact/hooks";
import type { Tool } from "../../api/types.ts";
import { duration, number, percent } from "../../base/format.ts";
import { useResource } from "../../data/resource.ts";
import { statusCounts, statuses, tools } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { type Column, LongList } from "../../ui/long-list.tsx";
import { Raw } from "../../ui/raw.tsx";
import { address, go, route, setQuery } from "../../ui/router.ts";
import { useSelection } from "../../ui/selection.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { ToolBadge } from "../../ui/status.tsx";
import { applyFilter, nextSort, readFilter, type SortName, type ToolFilter } from "./filter.ts";
import { Left } from "./left.tsx";

export function ToolsPage() {
  const t = texts.value;
  useResource(tools);
  return (
    <section class="page fill">
      <h1>{t.nav.tools}</h1>
      <Loaded of={tools}>
        {(snapshot) =>
          snapshot.value.length === 0 ? (
            <Empty title={t.tools.none} text={t.tools.noneText} command="toolhub init && toolhub serve --watch" />
          ) : (
            <List all={snapshot.value} />
          )
        }
      </Loaded>
    </section>
  );
}

const nameOf = (tool: Tool): string => tool.name;

function List({ all }: { all: readonly Tool[] }) {
  const t = texts.value.tools;
  const filter = readFilter(route.value.query);
  const found = useMemo(() => applyFilter(all, filter), [all, JSON.stringify(filter)]);
  const selected = useSelection(found, nameOf, (tool) => go(address.tool(tool.name)));
  return (
    <>
      <Filters all={all} filter={filter} count={found.length} />
      {found.length === 0 ? (
        <Empty title={t.noMatch} />
      ) : (
        <LongList label={t.list} class="tool-list" items={found} columns={columns(filter)} keyOf={nameOf} selected={selected} />
      )}
    </>
  );
}

function Filters({ all, filter, count }: { all: readonly Tool[]; filter: ToolFilter; count: number }) {
  const t = texts.value;
  const kinds = useMemo(() => [...new Set(all.map((tool) => tool.kind))].sort(), [all]);
  const counts = statusCounts.value;
  return (
    <div class="filters" role="search">
      <input
        type="search"
        aria-label={t.tools.filter}
        placeholder={t.tools.filter}
        value={filter.q}
        spellcheck={false}
        onInput={(event) => setQuery({ q: event.currentTarget.value })}
      />
      <select aria-label={t.tools.status} value={filter.status} onChange={(event) => setQuery({ status: event.currentTarget.value })}>
        <option value="">{t.tools.anyStatus}</option>
        <option value="withheld">{t.tools.withheld(all.length - counts.available)}</option>
        {statuses.map((name) => (
          <option key={name} value={name}>
            {t.tools.statusCount(t.status[name], counts[name])}
          </option>
        ))}
      </select>
      {kinds.length > 1 && (
        <select aria-label={t.tools.kind} value={filter.kind} onChange={(event) => setQuery({ kind: event.currentTarget.value })}>
          <option value="">{t.tools.anyKind}</option>
          {kinds.map((kind) => (
            <option key={kind} value={kind} data-raw>
              {kind}
            </option>
          ))}
        </select>
      )}
      <span class="quiet" role="status">
        {count === all.length ? t.tools.count(count) : t.tools.countOf(count, all.length)}
      </span>
    </div>
  );
}

function columns(filter: ToolFilter): Column<Tool>[] {
  const t = texts.value.tools;
  const head = (name: SortName, title: string) => ({
    title: (
      <button type="button" class="sort" onClick={() => setQuery({ sort: nextSort(filter, name) })}>
        {title}
        {filter.sort === name && <span class={filter.descending ? "arrow" : "arrow up"}><Icon name="down" /></span>}
      </button>
    ),
    sort: filter.sort === name ? (filter.descending ? ("descending" as const) : ("ascending" as const)) : undefined,
  });
  const some = (value: number, text: string) => (value > 0 ? <span class="num">{text}</span> : <span class="num quiet" data-raw>–</span>);
  return [
    {
      name: "name",
      ...head("name", t.name),
      cell: (tool) => (
        <a href={address.tool(tool.name)}>
          <Raw text={tool.name} limit={80} />
        </a>
      ),
    },
    { name: "status", ...head("status", t.status), cell: (tool) => <ToolBadge status={tool.status} /> },
    {
      name: "about",
      title: t.about,
      cell: (tool) =>
        tool.status === "available" ? (
          <Raw text={tool.description} limit={160} />
        ) : (
          <>
            <Left name={tool.name} status={tool.status} />
            <Raw text={tool.reason} limit={120} />
          </>
        ),
    },
    { name: "kind", title: t.kind, cell: (tool) => <span data-raw class="quiet">{tool.kind}</span> },
    { name: "calls", ...head("calls", t.calls), cell: (tool) => some(tool.stats.calls, number(tool.stats.calls)) },
    {
      name: "errors",
      ...head("errors", t.errors),
      cell: (tool) => (tool.stats.errors > 0 ? <span class="num bad">{percent(tool.stats.errors, tool.stats.calls)}</span> : some(0, "")),
    },
    { name: "p95", ...head("p95", t.p95), cell: (tool) => some(tool.stats.calls, duration(tool.stats.p95Ms)) },
    { name: "inFlight", ...head("inFlight", t.inFlight), cell: (tool) => some(tool.stats.inFlight + tool.stats.queued, number(tool.stats.inFlight + tool.stats.queued)) },
  ];
}
