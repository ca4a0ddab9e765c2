// Bars over the page: the connection is lost, the server has another version, the key lacks a scope.

import { now } from "../base/clock.ts";
import { may, newVersion, session } from "../data/session.ts";
import { texts } from "../i18n/index.ts";
import { connection, retryStream } from "../live/client.ts";
import { Icon } from "../ui/icon.tsx";
import { Code } from "../ui/raw.tsx";
import { Time } from "../ui/time.tsx";

export function Bars() {
  return (
    <div class="bars" aria-live="polite">
      <ConnectionBar />
      <VersionBar />
      <ScopeBar />
    </div>
  );
}

function ConnectionBar() {
  const t = texts.value.connection;
  const current = connection.value;
  if (current.state !== "lost") return null;
  const seconds = Math.max(0, Math.ceil((current.nextAttempt - Date.now()) / 1000));
  void now.value;
  return (
    <div class="top-bar bad" data-bar="lost">
      <Icon name="lost" />
      <span class="grow">
        <strong>{t.lost}</strong> {t.since} <Time at={current.since} />{t.oldNumbers}
      </span>
      <span class="quiet" aria-hidden="true">
        {seconds > 0 ? t.nextAttempt(seconds) : t.trying}
      </span>
      <button type="button" onClick={retryStream}>
        {t.retryNow}
      </button>
    </div>
  );
}

function VersionBar() {
  const t = texts.value.connection;
  if (newVersion.value === null) return null;
  return (
    <div class="top-bar info" data-bar="version">
      <Icon name="info" />
      <span class="grow">{t.newVersion(newVersion.value)}</span>
      <button type="button" onClick={() => location.reload()}>
        {t.reload}
      </button>
    </div>
  );
}

function ScopeBar() {
  const t = texts.value.connection;
  if (session.value.state !== "in" || may("tools:read")) return null;
  return (
    <div class="top-bar warn" data-bar="scope">
      <Icon name="warning" />
      <span class="grow">
        {t.missingScope} <Code text="tools:read" />
      </span>
    </div>
  );
}
