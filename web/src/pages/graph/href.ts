// Addresses of the graph that keep the thread and the view.

import { address, route } from "../../ui/router.ts";

/** The present address of the graph with another tool, or "" for all of them. */
export function hrefOf(tool: string): string {
  const query = new URLSearchParams(route.value.query);
  query.delete("tool");
  if (tool) query.set("tool", tool);
  return address.graph(query.toString());
}
