// One state: its data and its facts, and how it is changed.

import type { StateEntry, StateKind } from "../../api/types.ts";
import { pretty } from "../../base/json.ts";
import { may } from "../../data/session.ts";
import { draftOf, setDraft } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { RawBlock } from "../../ui/raw.tsx";
import { Empty } from "../../ui/state.tsx";
import { Countdown, Time } from "../../ui/time.tsx";
import { Edit } from "./edit.tsx";

interface Props {
  id: string;
  kind: StateKind;
  entry: StateEntry | null;
  reread: () => Promise<void>;
}

export function EntryView({ id, kind, entry, reread }: Props) {
  const t = texts.value.contexts;
  const draft = draftOf(id, kind);
  // The server hides the cookies of tools.
  const hasCookies = kind === "cache" && /^[^/]*\/cookies:/.test(id);
  return (
    <section class="card stack">
      {entry && (
        <p class="card-head">
          <span class="quiet">
            {t.version} <strong class="num">{entry.version}</strong> · {t.updated} <Time at={entry.updatedAt} />
            {entry.expiresAt && <> · {t.expires} <Time at={entry.expiresAt} /> (<Countdown until={entry.expiresAt} />)</>}
          </span>
          {!draft && !hasCookies && may("state:write") && (
            <button type="button" onClick={() => setDraft(id, kind, { text: pretty(entry.data), base: entry, ttl: "" })}>
              {t.edit}
            </button>
          )}
        </p>
      )}
      {draft ? <Edit id={id} kind={kind} draft={draft} current={entry} reread={reread} /> : entry ? <RawBlock text={pretty(entry.data)} label={t.json} /> : <Empty title={t.unknownText} />}
    </section>
  );
}
