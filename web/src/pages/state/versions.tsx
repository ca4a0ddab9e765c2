// Stored versions of a state: what differs from the present one, and the way back.

import { useState } from "preact/hooks";
import type { StateEntry, StateVersion } from "../../api/types.ts";
import { pretty } from "../../base/json.ts";
import { may } from "../../data/session.ts";
import { rollBack, versionsOf } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Diff } from "../../ui/diff.tsx";
import { Failure, say } from "../../ui/notice.tsx";
import { Time } from "../../ui/time.tsx";
import { useRead } from "./read.ts";

export function Versions({ entry, reread }: { entry: StateEntry; reread: () => Promise<void> }) {
  const t = texts.value.contexts;
  const { value: versions, error } = useRead(() => versionsOf(entry.contextId), entry.etag ?? "");
  const [compared, compare] = useState(0);
  const [asked, ask] = useState(0);
  const shown = versions?.find(({ version }) => version === compared);
  return (
    <section class="card">
      <h2>{t.versions}</h2>
      {error && <p class="error-text"><Failure error={error} /></p>}
      {versions?.length === 0 && <p class="quiet">{t.noVersions}</p>}
      <ul class="version-list">
        {versions?.map(({ version, createdAt }) => (
          <li key={version}>
            <span class="grow">
              <span class="num">{version}</span> · <Time at={createdAt} />
              {version === entry.version && <span class="tag">{t.current}</span>}
            </span>
            {version !== entry.version && (
              <span class="answers">
                <button type="button" aria-pressed={compared === version} onClick={() => compare(compared === version ? 0 : version)}>
                  {t.compare}
                </button>
                {may("state:write") && (
                  <button type="button" onClick={() => (compare(version), ask(version))}>
                    {t.rollBack}
                  </button>
                )}
              </span>
            )}
          </li>
        ))}
      </ul>
      {shown && <Difference shown={shown} entry={entry} />}
      {asked > 0 && shown && <Ask entry={entry} shown={shown} close={() => ask(0)} reread={reread} />}
    </section>
  );
}

const Difference = ({ shown, entry }: { shown: StateVersion; entry: StateEntry }) => (
  <>
    <h3>{texts.value.contexts.compareWith(shown.version)}</h3>
    <Diff before={pretty(shown.data)} after={pretty(entry.data)} />
  </>
);

function Ask({ entry, shown, close, reread }: { entry: StateEntry; shown: StateVersion; close: () => void; reread: () => Promise<void> }) {
  const t = texts.value.contexts;
  const act = async () => {
    try {
      await rollBack(entry, shown.version);
      say(t.rolledBack(shown.version));
      close();
    } finally {
      await reread();
    }
  };
  return (
    <Dialog title={t.rollBackAsk(shown.version)} close={close}>
      <div class="form">
        <Diff before={pretty(entry.data)} after={pretty(shown.data)} />
        <p class="quiet">{t.rollBackText}</p>
        <div class="dialog-actions">
          <button type="button" autofocus onClick={close}>
            {texts.value.common.cancel}
          </button>
          <ActButton class="primary danger" act={act}>
            {t.rollBackNow}
          </ActButton>
        </div>
      </div>
    </Dialog>
  );
}
