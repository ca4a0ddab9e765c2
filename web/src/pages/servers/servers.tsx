// The MCP servers.

import type { McpServer } from "../../api/types.ts";
import { servers } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Table } from "../../ui/table.tsx";
import { ConnectionState, RestartButton } from "./connection.tsx";

const example = "toolhub mcp add files npx -- -y @modelcontextprotocol/server-filesystem /srv/files";

export function ServersPage() {
  const t = texts.value;
  useResource(servers);
  return (
    <section class="page">
      <h1>{t.nav.servers}</h1>
      <Loaded of={servers}>
        {(snapshot) =>
          snapshot.value.length === 0 ? (
            <Empty title={t.servers.none} text={t.servers.noneText} command={example} />
          ) : (
            <Table label={t.nav.servers} heads={[t.tools.name, t.tools.status, t.nav.tools, <span class="hidden">{t.grants.actions}</span>]}>
              {snapshot.value.map((server) => (
                <tr key={server.name}>
                  <th scope="row"><a href={address.server(server.name)}><Code text={server.name} /></a></th>
                  <td><ConnectionState server={server} /></td>
                  <td><Counts of={server.toolCounts} /></td>
                  <td class="right"><RestartButton server={server} /></td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
    </section>
  );
}

function Counts({ of: { registered, pendingApproval, quarantined } }: { of: McpServer["toolCounts"] }) {
  const { toolState } = texts.value.servers;
  return (
    <>
      <span class="num">{registered}</span>
      {pendingApproval > 0 && <div class="warn-text">{pendingApproval} {toolState.pending_approval}</div>}
      {quarantined > 0 && <div class="warn-text">{quarantined} {toolState.quarantined}</div>}
    </>
  );
}
