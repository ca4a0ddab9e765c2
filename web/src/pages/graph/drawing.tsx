// The drawn graph: links for tools above lines. A line is solid, dashed or dotted, as its group needs all, any, or all in order.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Edge, GraphNode } from "../../data/graph.ts";
import { texts } from "../../i18n/index.ts";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { hrefOf } from "./href.ts";
import { type Box, boxHeight, layOut } from "./layout.ts";
import { Status } from "./status.tsx";

const margin = 16;
const zooms = [0.4, 0.6, 0.8, 1, 1.3];
const characterWidth = 7.6;
const widthOf = (name: string): number => Math.max(136, Math.ceil(name.length * characterWidth) + 22);

export function Drawing({ nodes, edges, chosen }: { nodes: readonly GraphNode[]; edges: readonly Edge[]; chosen: string }) {
  const t = texts.value.dependencies;
  const [zoom, setZoom] = useState(1);
  const [viewWidth, setViewWidth] = useState(1000);
  const frame = useRef<HTMLDivElement>(null);
  const plane = useRef<HTMLDivElement>(null);
  // The layout depends on names and lines only.
  const shape = JSON.stringify([nodes.map(({ name }) => name), edges.map(({ from, to, group }) => [from, to, group]), viewWidth]);
  const layout = useMemo(() => layOut(nodes.map(({ name }) => name), edges, widthOf, viewWidth), [shape]);
  const [width, height] = [layout.width + 2 * margin, layout.height + 2 * margin];
  useEffect(() => setViewWidth((frame.current?.clientWidth ?? 1000) - 2 * margin), []);
  useEffect(() => {
    const style = plane.current!.style;
    [style.width, style.height] = [`${width}px`, `${height}px`];
    style.setProperty("zoom", String(zoom));
  });
  useEffect(() => {
    const box = layout.boxes.get(chosen);
    const view = frame.current!;
    if (box) view.scrollTo((box.x + box.width / 2) * zoom - view.clientWidth / 2, box.y * zoom - view.clientHeight / 2);
  }, [chosen, layout]);
  const at = zooms.indexOf(zoom);
  const needs = new Map<string, Edge[]>();
  for (const edge of edges) needs.get(edge.to)?.push(edge) ?? needs.set(edge.to, [edge]);
  const inOrder = [...nodes].sort((a, b) => compare(layout.boxes.get(a.name)!, layout.boxes.get(b.name)!));
  return (
    <div class="graph">
      <div ref={frame} class="graph-frame" tabIndex={0} role="group" aria-label={texts.value.nav.graph}>
        <div ref={plane} class="graph-plane">
          <svg viewBox={`${-margin} ${-margin} ${width} ${height}`} aria-hidden="true">
            {edges.map((edge, index) => (
              <Line key={`${edge.from} ${edge.to} ${edge.group}`} edge={edge} siblings={needs.get(edge.to)!} boxes={layout.boxes} bends={layout.bends[index]!} />
            ))}
          </svg>
          {inOrder.map((node) => (
            <Tool key={node.name} node={node} box={layout.boxes.get(node.name)!} isChosen={node.name === chosen} />
          ))}
        </div>
      </div>
      <div class="graph-foot">
        <ul class="legend">
          {(["all", "any", "sequence"] as const).map((kind) => (
            <li key={kind}>
              <svg class={`edge ${kind}`} viewBox="0 0 36 6" aria-hidden="true"><path d="M0 3H36" /></svg> {t.kinds[kind].replace(/[:：]/, "")}
            </li>
          ))}
          {edges.some(({ met }) => met != null) && <li>✓ {t.met} ✗ {t.missing}</li>}
        </ul>
        <div class="segmented">
          {([-1, 1] as const).map((step) => (
            <button key={step} type="button" disabled={!zooms[at + step]} aria-label={texts.value.graph.zoom[step < 0 ? 0 : 1]} onClick={() => setZoom(zooms[at + step]!)}>
              {step < 0 ? "−" : "+"}
            </button>
          ))}
        </div>
      </div>
    </div>
  );
}

/** The order of Tab: from left to right, then down. */
const compare = (a: Box, b: Box): number => a.x - b.x || a.y - b.y;

/** A tool. The first click shows what it depends on, one more opens its page. */
function Tool({ node, box, isChosen }: { node: GraphNode; box: Box; isChosen: boolean }) {
  const element = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    const { style } = element.current!;
    [style.left, style.top, style.width, style.height] = [box.x + margin, box.y + margin, box.width, boxHeight].map((value) => `${value}px`) as [string, string, string, string];
  }, [box]);
  const href = isChosen && node.kind ? address.tool(node.name) : hrefOf(node.name);
  return (
    <a ref={element} class="graph-tool" href={href} aria-current={isChosen ? "true" : undefined}>
      <span class="ellipsis"><Code text={node.name} /></span>
      <Status node={node} />
    </a>
  );
}

interface LineProps {
  edge: Edge;
  /** All dependencies of the same tool. */
  siblings: readonly Edge[];
  boxes: Map<string, Box>;
  bends: readonly { x: number; y: number }[];
}

function Line({ edge, siblings, boxes, bends }: LineProps) {
  const [from, to] = [boxes.get(edge.from)!, boxes.get(edge.to)!];
  const groups = new Set(siblings.map(({ group }) => group));
  const group = siblings.filter((other) => other.group === edge.group);
  // Each group of dependencies has a port of its own.
  const port = ([...groups].sort((a, b) => a - b).indexOf(edge.group) + 1) / (groups.size + 1);
  const points = [{ x: from.x + from.width, y: from.y + boxHeight / 2 }, ...bends, { x: to.x - 5, y: to.y + port * boxHeight }];
  const path = points.map(({ x, y }, index) => {
    const last = points[index - 1];
    if (!last) return `M${x} ${y}`;
    const half = (last.x + x) / 2;
    return `C${half} ${last.y} ${half} ${y} ${x} ${y}`;
  });
  const end = points.at(-1)!;
  const order = edge.needs === "sequence" && group.length > 1 ? String(group.indexOf(edge) + 1) : "";
  const mark = order + (edge.met == null ? "" : edge.met ? "✓" : "✗");
  const next = points[1]!;
  return (
    <g class={`edge ${group.length > 1 ? edge.needs : "all"} ${edge.met ? "met" : ""}`}>
      <path d={path.join("")} />
      <path class="head" d={`M${end.x + 5} ${end.y}l-7 -3.5v7z`} />
      {mark && <text data-raw x={(points[0]!.x + next.x) / 2} y={(points[0]!.y + next.y) / 2 + 4}>{mark}</text>}
    </g>
  );
}
