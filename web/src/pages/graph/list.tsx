// The same dependencies as a table, for reading them one after the other.

import type { Edge, GraphNode } from "../../data/graph.ts";
import { texts } from "../../i18n/index.ts";
import { Code } from "../../ui/raw.tsx";
import { Table } from "../../ui/table.tsx";
import { Groups } from "../tools/dependencies.tsx";
import { hrefOf } from "./href.ts";
import { Status } from "./status.tsx";

export function List({ nodes, edges }: { nodes: readonly GraphNode[]; edges: readonly Edge[] }) {
  const t = texts.value;
  const rows = nodes.map((node) => ({ node, needs: edges.filter(({ to }) => to === node.name) })).filter(({ needs }) => needs.length > 0);
  return (
    <Table label={t.graph.list} heads={[t.tools.name, t.tools.status, t.dependencies.needs]}>
      {rows.map(({ node, needs }) => (
        <tr key={node.name}>
          <th scope="row"><a href={hrefOf(node.name)}><Code text={node.name} /></a></th>
          <td><Status node={node} /></td>
          <td><Groups edges={needs} /></td>
        </tr>
      ))}
    </Table>
  );
}
