// The MCP servers.

import { texts } from "../../i18n/index.ts";

export function ServersPage() {
  return (
    <section class="page">
      <h1>{texts.value.servers.title}</h1>
    </section>
  );
}
