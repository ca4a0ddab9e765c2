// Config, keys, audit, backups, and what runs here.

import { texts } from "../../i18n/index.ts";

export function SettingsPage() {
  return (
    <section class="page">
      <h1>{texts.value.settings.title}</h1>
    </section>
  );
}
