// The threads, and a new one.

import { texts } from "../../i18n/index.ts";

export function ThreadsPage() {
  return (
    <section class="page">
      <h1>{texts.value.threads.title}</h1>
    </section>
  );
}
