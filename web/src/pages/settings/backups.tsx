// Backups of the store: made here, restored on the server.

import { bytes } from "../../base/format.ts";
import { quoted } from "../../base/snippets.ts";
import { backups, makeBackup } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton, Command } from "../../ui/button.tsx";
import { Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";

export function Backups() {
  const t = texts.value.settings;
  return (
    <section class="card stack">
      <p>{t.backupText}</p>
      <div class="actions">
        <ActButton class="primary" act={() => makeBackup("hub")}>{t.backup}</ActButton>
        <ActButton act={() => makeBackup("state")}>{t.backupState}</ActButton>
      </div>
      {backups.value.map(({ path, bytes: size, sha256, store }) => (
        <div key={path} role="status">
          <Command text={`toolhub restore ${store === "state" ? "--state " : ""}${quoted(path)}`} />
          <div class="quiet">
            {bytes(size)} · <Raw text={`SHA-256 ${sha256}`} />
          </div>
        </div>
      ))}
      <a href={address.settings("view=audit&q=backup.make")}>{t.backupsAll}</a>
    </section>
  );
}
