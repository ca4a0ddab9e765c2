// What must succeed before a tool, and which tools wait for it.

import type { Tool } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { type Edge, graphOf, groupsOf } from "../../data/graph.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";

const graph = graphOf("");

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
          <>
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
            <p class="more-button"><a href={address.graph(`tool=${tool.name}`)}>{texts.value.nav.graph}</a></p>
          </>
        );
      }}
    </Loaded>
  );
}

/** The groups of a tool's dependencies; in a thread, each with whether it is met. */
export function Groups({ edges }: { edges: readonly Edge[] }) {
  const t = texts.value.dependencies;
  return (
    <ul class="plain-list">
      {groupsOf(edges).map((group) => {
        const [{ needs, withinMs } = { needs: "all" as const, withinMs: null }] = group;
        return (
          <li key={group[0]?.group}>
            {group.length > 1 && <span class="quiet">{t.kinds[needs]} </span>}
            {group.map(({ from, met }) => (
              <a key={from} href={address.tool(from)} class="spaced">
                <Code text={from} />
                {met != null && <span class={met ? "met" : "quiet"}> <Icon name={met ? "check" : "clock"} /> {met ? t.met : t.missing}</span>}
              </a>
            ))}
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
