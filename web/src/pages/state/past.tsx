// Stored versions of a state, the way back to one, and what happened to the context.

import { useState } from "preact/hooks";
import type { HistoryEntry, StateEntry, StateVersion } from "../../api/types.ts";
import { pretty } from "../../base/json.ts";
import { may } from "../../data/session.ts";
import { rollBack } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { Confirm } from "../../ui/confirm.tsx";
import { Diff } from "../../ui/diff.tsx";
import { Raw } from "../../ui/raw.tsx";
import { Time } from "../../ui/time.tsx";

interface Props {
  entry: StateEntry;
  versions: readonly StateVersion[];
  history: readonly HistoryEntry[];
  reread: () => Promise<void>;
}

export function Past({ entry, versions, history, reread }: Props) {
  const t = texts.value.contexts;
  const [asked, ask] = useState<StateVersion | null>(null);
  const [opened, open] = useState(0);
  return (
    <section class="card past">
      <h2>{t.versions}</h2>
      <ul>
        {versions.map((old) => (
          <li key={old.version}>
            <strong class="num">{old.version}</strong> <Time at={old.createdAt} />{" "}
            {old.version !== entry.version && (
              <>
                <button type="button" class="link" aria-expanded={opened === old.version} onClick={() => open(opened === old.version ? 0 : old.version)}>
                  {texts.value.common.difference}
                </button>{" "}
                {may("state:write") && <button type="button" class="link" onClick={() => ask(old)}>{t.rollBack}…</button>}
              </>
            )}
            {opened === old.version && <Diff before={pretty(old.data)} after={pretty(entry.data)} />}
          </li>
        ))}
      </ul>
      <h2>{t.history}</h2>
      <ul tabIndex={0} aria-label={t.history}>
        {history.map((one, index) => (
          <li key={index}>
            <Time at={one.timestamp} /> {t.event[one.type]} <Raw text={detail(one)} limit={300} />
          </li>
        ))}
      </ul>
      {asked && (
        <Confirm title={t.rollBackAsk(asked.version)} word={t.rollBack} close={() => ask(null)} act={() => rollBack(entry, asked.version).finally(reread)}>
          <Diff before={pretty(entry.data)} after={pretty(asked.data)} />
        </Confirm>
      )}
    </section>
  );
}

function detail(entry: HistoryEntry): string {
  switch (entry.type) {
    case "execution_start":
      return JSON.stringify(entry.parameters);
    case "execution_success":
      return entry.resultType;
    case "execution_error":
      return `${entry.errorType}: ${entry.error}`;
    case "update":
      return `${entry.version} ${JSON.stringify(entry.updates)}`;
    case "note":
      return JSON.stringify(entry.what);
  }
}
