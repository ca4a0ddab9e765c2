// Config, keys, audit, backups, and what runs here.

import type { ComponentChildren } from "preact";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { NeedsScope } from "../../ui/needs-scope.tsx";
import { openDialog } from "../../ui/open-dialog.ts";
import { address, route } from "../../ui/router.ts";
import { Tabs } from "../../ui/tabs.tsx";
import { About } from "./about.tsx";
import { Audit } from "./audit.tsx";
import { Backups } from "./backups.tsx";
import { Config } from "./config.tsx";
import { Keys } from "./keys.tsx";

const views = { config: Config, keys: Keys, audit: Audit, backups: Backups, about: About } satisfies Record<string, () => ComponentChildren>;
type View = keyof typeof views;
const names = Object.keys(views) as View[];

export function SettingsPage() {
  const t = texts.value;
  const isAdmin = may("admin");
  const asked = route.value.query.get("view");
  const view = names.find((name) => name === asked) ?? (isAdmin ? "config" : "about");
  const shown = names.filter((name) => isAdmin || name === "about" || name === view);
  const Part = views[view];
  return (
    <section class={view === "config" || view === "audit" ? "page fill" : "page"}>
      <div class="page-head">
        <h1>{t.nav.settings}</h1>
        <button type="button" onClick={() => (openDialog.value = "preferences")}>
          {t.preferences.title}
        </button>
      </div>
      <Tabs label={t.nav.settings} current={view} tabs={shown.map((name) => ({ name, title: t.settings.view[name], href: address.settings(`view=${name}`) }))} />
      {view === "about" ? <Part /> : <NeedsScope scope="admin">{() => <Part key={view} />}</NeedsScope>}
    </section>
  );
}
