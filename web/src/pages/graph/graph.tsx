// The graph of dependencies between tools.

import { texts } from "../../i18n/index.ts";

export function GraphPage() {
  return (
    <section class="page">
      <h1>{texts.value.graph.title}</h1>
    </section>
  );
}
