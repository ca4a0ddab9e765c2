// What must succeed before a tool, and which tools wait for it.

import { get } from "../../api/client.ts";
import type { Graph, Tool } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Fresh } from "../../ui/fresh.tsx";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";

const graph = new Resource<Graph>(() => get("/api/v1/graph"), {
  changes: ({ event }) => event === "tool.registered" || event === "tool.unregistered" || event === "config.reloaded",
});

type Edge = Graph["edges"][number];

export function Dependencies({ tool }: { tool: Tool }) {
  const t = texts.value.dependencies;
  useResource(graph);
  return (
    <Loaded of={graph}>
      {(snapshot) => {
        const needs = snapshot.value.edges.filter(({ to }) => to === tool.name);
        const neededBy = snapshot.value.edges.filter(({ from }) => from === tool.name);
        if (needs.length + neededBy.length === 0) return <Empty title={t.none} text={t.noneText} />;
        return (
          <Fresh of={snapshot}>
            <div class="columns even">
              <section class="card">
                <h2>{t.needs}</h2>
                {needs.length === 0 ? <p class="quiet">{t.needsNothing}</p> : <Groups edges={needs} />}
              </section>
              <section class="card">
                <h2>{t.neededBy}</h2>
                {neededBy.length === 0 ? <p class="quiet">{t.neededByNone}</p> : <Links names={neededBy.map(({ to }) => to)} />}
              </section>
            </div>
          </Fresh>
        );
      }}
    </Loaded>
  );
}

function Groups({ edges }: { edges: readonly Edge[] }) {
  const t = texts.value.dependencies;
  const groups: Edge[][] = [];
  for (const edge of edges) (groups[edge.group] ??= []).push(edge);
  return (
    <ul class="plain-list">
      {groups.filter(Boolean).map((group) => {
        const [{ needs, withinMs } = { needs: "all" as const, withinMs: null }] = group;
        return (
          <li key={group[0]?.group}>
            {group.length > 1 && <span class="quiet">{t.kinds[needs]} </span>}
            <Links names={group.map(({ from }) => from)} />
            {withinMs != null && <span class="quiet"> {t.within(duration(withinMs))}</span>}
          </li>
        );
      })}
    </ul>
  );
}

const Links = ({ names }: { names: readonly string[] }) => (
  <>
    {[...new Set(names)].map((name) => (
      <a key={name} href={address.tool(name)} class="spaced">
        <Code text={name} />
      </a>
    ))}
  </>
);
