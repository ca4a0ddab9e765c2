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

const isView = (name: string | null): name is View => name !== null && Object.hasOwn(views, name);

export function SettingsPage() {
  const t = texts.value.settings;
  const asked = route.value.query.get("view");
  const isAdmin = may("admin");
  const view: View = isView(asked) ? asked : isAdmin ? "config" : "about";
  const Part = views[view];
  const shown = (Object.keys(views) as View[]).filter((name) => isAdmin || name === "about" || name === view);
  return (
    <section class={view === "backups" || view === "about" ? "page" : "page fill"}>
      <div class="page-head">
        <h1>{t.title}</h1>
        <button type="button" onClick={() => (openDialog.value = "preferences")}>
          {t.display}
        </button>
      </div>
      <Tabs label={t.views} current={view} tabs={shown.map((name) => ({ name, title: t.view[name], href: address.settings(`view=${name}`) }))} />
      {view === "about" ? <Part /> : <NeedsScope scope="admin">{() => <Part key={view} />}</NeedsScope>}
    </section>
  );
}
