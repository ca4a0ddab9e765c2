// Contexts of tool state.

import { texts } from "../../i18n/index.ts";

export function StatePage() {
  return (
    <section class="page">
      <h1>{texts.value.contexts.title}</h1>
    </section>
  );
}
