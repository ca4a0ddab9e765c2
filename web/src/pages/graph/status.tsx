// The status of a tool in the graph: a dependency need not be registered.

import type { GraphNode } from "../../data/graph.ts";
import { texts } from "../../i18n/index.ts";
import { Badge, ToolBadge } from "../../ui/status.tsx";

export const Status = ({ node }: { node: GraphNode }) =>
  node.status ? <ToolBadge status={node.status} /> : <Badge icon="question" tone="warn" word={texts.value.graph.notRegistered} />;
