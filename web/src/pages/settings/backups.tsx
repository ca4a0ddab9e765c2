// Backups of the store: made here, restored on the server.

import { bytes } from "../../base/format.ts";
import { backups, makeBackup } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton, Command } from "../../ui/button.tsx";
import { say } from "../../ui/notice.tsx";
import { Code } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Time } from "../../ui/time.tsx";

export function Backups() {
  const t = texts.value.settings;
  const make = (store: "hub" | "state") => () => makeBackup(store).then(() => say(t.backedUp));
  const made = backups.value;
  return (
    <section class="card stack">
      <div>
        <p>{t.backupText}</p>
        <p class="quiet">{t.backupStateText}</p>
      </div>
      <div class="actions">
        <ActButton class="primary" act={make("hub")}>{t.backup}</ActButton>
        <ActButton act={make("state")}>{t.backupState}</ActButton>
      </div>
      <h2>{t.backupsMade}</h2>
      {made.length === 0 && <p class="quiet">{t.noBackups}</p>}
      <ul class="backups">
        {made.map((backup) => (
          <li key={backup.path}>
            <Time at={backup.at} /> <Code text={backup.path} limit={1000} /> <span class="num">{bytes(backup.bytes)}</span>
            <div class="quiet">
              <span data-raw>SHA-256</span> <Code text={backup.sha256} />
            </div>
          </li>
        ))}
      </ul>
      <p>
        <a href={address.settings("view=audit&act=backup.make")}>{t.backupsAll}</a>
      </p>
      <p class="quiet">{t.restore}</p>
      <div>
        <Command text={`toolhub restore ${made[0]?.path ?? "FILE"}`} />
      </div>
    </section>
  );
}
