// The graph of dependencies between tools: all of it, or what one tool waits for and what waits for it.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Graph } from "../../api/types.ts";
import { closest, search } from "../../base/match.ts";
import { connectedNames, graphOf, type GraphNode, maxDrawn, neighbourhood } from "../../data/graph.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { address, route, setQuery } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { ThreadField } from "../tools/why.tsx";
import { Suggestions } from "../unknown.tsx";
import { Drawing } from "./drawing.tsx";
import { hrefOf } from "./href.ts";
import { List } from "./list.tsx";
import { Status } from "./status.tsx";

const example = '[tools.report]\ndepends_on = ["clock"]';

export function GraphPage() {
  const t = texts.value;
  const threadId = route.value.query.get("thread") ?? "";
  const resource = useMemo(() => graphOf(threadId), [threadId]);
  useResource(resource);
  return (
    <section class="page graph-page">
      <div class="page-head">
        <h1>{t.nav.graph}</h1>
        <ThreadField key={threadId} threadId={threadId} />
      </div>
      <Loaded of={resource}>
        {(snapshot) =>
          snapshot.value.edges.length > 0 ? <View graph={snapshot.value} /> : <Empty title={t.dependencies.none} text={t.graph.noneText} command={example} />
        }
      </Loaded>
    </section>
  );
}

function View({ graph }: { graph: Graph }) {
  const t = texts.value;
  const { query } = route.value;
  const [chosen, isList] = [query.get("tool") ?? "", query.get("view") === "list"];
  const all = connectedNames(graph.edges);
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const node = nodes.get(chosen);
  const isTooMany = !node && all.length > maxDrawn;
  const names = node ? neighbourhood(graph.edges, chosen) : new Set(isTooMany ? [] : all);
  const edges = graph.edges.filter(({ from, to }) => names.has(from) && names.has(to));
  const shown = graph.nodes.filter(({ name }) => names.has(name));
  return (
    <>
      <div class="filters">
        <ToolField names={all} chosen={chosen} />
        {chosen && <a href={hrefOf("")}>{t.graph.whole}</a>}
        <span class="quiet">{t.graph.counts(shown.length, graph.nodes.length)}</span>
        <button type="button" aria-pressed={isList} onClick={() => setQuery({ view: isList ? null : "list" })}>{t.graph.list}</button>
      </div>
      {node && <Chosen node={node} />}
      {chosen && !node && (
        <div class="callout warn">
          <div>{t.tool.unknown}: <Code text={chosen} /><Suggestions links={closest(chosen, all).map((name) => ({ href: hrefOf(name), name, isRaw: true }))} /></div>
        </div>
      )}
      {isTooMany && <Empty title={t.graph.tooMany(all.length, maxDrawn)} />}
      {node && edges.length === 0 && <Empty title={t.dependencies.none} text={t.dependencies.noneText} />}
      {edges.length > 0 && (isList ? <List nodes={shown} edges={edges} /> : <Drawing nodes={shown} edges={edges} chosen={chosen} />)}
    </>
  );
}

const Chosen = ({ node }: { node: GraphNode }) => (
  <p class="chosen">
    {node.kind ? <a href={address.tool(node.name)}><Code text={node.name} /></a> : <Code text={node.name} />} <Status node={node} /> <Raw text={node.reason ?? ""} limit={300} />
  </p>
);

/** Chooses a tool by a part of its name; Enter takes the closest. */
function ToolField({ names, chosen }: { names: readonly string[]; chosen: string }) {
  const t = texts.value.graph;
  const [typed, setTyped] = useState(chosen);
  // Not by a key: the field keeps the focus when it is emptied.
  useEffect(() => setTyped(chosen), [chosen]);
  const found = typed ? search(typed, names, (name) => name, 20) : [];
  const choose = (name: string) => setQuery({ tool: name });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        choose(found[0] ?? typed.trim());
      }}
    >
      <input
        type="search"
        list="graph-tools"
        aria-label={t.choose}
        placeholder={t.choose}
        value={typed}
        autocomplete="off"
        onInput={(event) => {
          const { value } = event.currentTarget;
          setTyped(value);
          // A name that was picked from the list, or an emptied field.
          if (!value || (event as InputEvent).inputType === "insertReplacementText") choose(value);
        }}
      />
      <datalist id="graph-tools">{found.map((name) => <option key={name} value={name} />)}</datalist>
    </form>
  );
}
