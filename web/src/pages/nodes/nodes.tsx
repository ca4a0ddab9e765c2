// The nodes that share the store.

import { useState } from "preact/hooks";
import type { Node, NodeReload } from "../../api/types.ts";
import { nodes, reloadNodes } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Icon } from "../../ui/icon.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Loaded } from "../../ui/state.tsx";
import { Badge } from "../../ui/status.tsx";
import { Table } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";

export function NodesPage() {
  const t = texts.value;
  const [answers, setAnswers] = useState<readonly NodeReload[]>([]);
  useResource(nodes);
  const reload = () => reloadNodes().then((answer) => (setAnswers(answer.nodes), nodes.read()));
  return (
    <section class="page">
      <div class="page-head">
        <h1>{t.nav.nodes}</h1>
        {may("admin") && <ActButton act={reload}>{t.attention.reloadAll}</ActButton>}
      </div>
      {answers.length > 0 && (
        <div class="card" role="status">
          {answers.map((answer) => <Answer key={answer.id} answer={answer} />)}
        </div>
      )}
      <Loaded of={nodes}>
        {(snapshot) => (
          <>
            <Nodes list={snapshot.value} at={snapshot.at} />
            {snapshot.value.length === 1 && <p class="quiet one-node">{t.nodes.one} <Code text="docs/guide/nodes.md" /></p>}
          </>
        )}
      </Loaded>
    </section>
  );
}

function Nodes({ list, at }: { list: readonly Node[]; at: number }) {
  const t = texts.value.nodes;
  const { nav, tools, calls } = texts.value;
  const own = list.find(({ isSelf }) => isSelf);
  return (
    <Table label={nav.nodes} heads={[tools.name, tools.status, calls.started, t.version, t.config]}>
      {list.map((node) => (
        <tr key={node.id} data-state={node.state}>
          <th scope="row">
            <Code text={node.name} limit={100} /> {node.isSelf && <span class="tag">{t.self}</span>}
            {node.isMaintainer && <span class="tag">{t.maintainer}</span>}
            {node.address && <div class="quiet"><Raw text={node.address} limit={200} /></div>}
          </th>
          <td>{node.state === "alive" ? <Badge icon="check" tone="good" word={t.alive} /> : <Badge icon="lost" tone="bad" word={t.dead} />} <Ago at={at - node.sinceRenewalMs} /></td>
          <td><Ago at={node.startedAt} /></td>
          <td><Code text={node.version} /><div class="quiet">{t.layouts(node.layouts.read, node.layouts.written)}</div></td>
          <td>
            <Code text={node.configDigest?.slice(0, 8) ?? "–"} />
            {own && node.configDigest !== own.configDigest && <div><Badge icon="warning" tone="warn" word={t.differs} /></div>}
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** What a node answered to the reload. */
function Answer({ answer }: { answer: NodeReload }) {
  const { nodes: t, common, servers, nav, attention } = texts.value;
  const isDone = answer.status === "reloaded";
  const names = { added: common.added, replaced: servers.hasChanged, removed: common.removed, sections: nav.settings, needsRestart: attention.restartHint };
  const parts = isDone ? (Object.keys(names) as (keyof typeof names)[]).filter((part) => answer.report[part].length > 0) : [];
  return (
    <div>
      <Icon name={isDone ? "check" : "warning"} /> <Code text={answer.name} /> {t.answer[answer.status]}
      {isDone ? parts.map((part) => <div key={part}>{names[part]}: <Raw text={answer.report[part].join(", ")} limit={600} /></div>) : <div class="error-text"><Raw text={answer.detail} limit={1000} /></div>}
      {answer.status === "refused" && answer.errors?.map(({ place, detail }) => <div key={place + detail}><Code text={place} /> <Raw text={detail} /></div>)}
    </div>
  );
}
