// The page that belongs to the address.

import { route } from "../ui/router.ts";
import { AlertsPage } from "./alerts/alerts.tsx";
import { ApprovalsPage } from "./approvals/approvals.tsx";
import { CallPage } from "./calls/call.tsx";
import { CallsPage } from "./calls/calls.tsx";
import { GraphPage } from "./graph/graph.tsx";
import { NodesPage } from "./nodes/nodes.tsx";
import { Overview } from "./overview/overview.tsx";
import { RunPage } from "./runs/run.tsx";
import { ServerPage } from "./servers/server.tsx";
import { ServersPage } from "./servers/servers.tsx";
import { SettingsPage } from "./settings/settings.tsx";
import { ContextPage } from "./state/context.tsx";
import { StatePage } from "./state/state.tsx";
import { ThreadPage } from "./threads/thread.tsx";
import { ThreadsPage } from "./threads/threads.tsx";
import { ToolPage } from "./tools/tool.tsx";
import { ToolsPage } from "./tools/tools.tsx";
import { Unknown } from "./unknown.tsx";

export function Page() {
  const { page, param } = route.value;
  switch (page) {
    case "overview":
      return <Overview />;
    case "tools":
      return <ToolsPage />;
    case "tool":
      return <ToolPage key={param} name={param} />;
    case "calls":
      return <CallsPage />;
    case "call":
      return <CallPage key={param} id={param} />;
    case "approvals":
    case "approval":
      return <ApprovalsPage id={param} />;
    case "threads":
      return <ThreadsPage />;
    case "thread":
      return <ThreadPage key={param} id={param} />;
    case "run":
      return <RunPage key={param} id={param} />;
    case "state":
      return <StatePage />;
    case "context":
      return <ContextPage key={param} id={param} />;
    case "graph":
      return <GraphPage />;
    case "servers":
      return <ServersPage />;
    case "server":
      return <ServerPage key={param} name={param} />;
    case "nodes":
      return <NodesPage />;
    case "alerts":
      return <AlertsPage />;
    case "settings":
      return <SettingsPage />;
    case "unknown":
      return <Unknown />;
  }
}
