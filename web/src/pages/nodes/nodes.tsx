// The nodes that share the store.

import { texts } from "../../i18n/index.ts";

export function NodesPage() {
  return (
    <section class="page">
      <h1>{texts.value.nodes.title}</h1>
    </section>
  );
}
