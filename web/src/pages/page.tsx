// The page that belongs to the address.

import { route } from "../ui/router.ts";
import { ApprovalsPage } from "./approvals/approvals.tsx";
import { CallPage } from "./calls/call.tsx";
import { CallsPage } from "./calls/calls.tsx";
import { Overview } from "./overview/overview.tsx";
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
    case "unknown":
      return <Unknown />;
  }
}
