// One state: its data and its facts, and how it is changed.

import type { StateEntry, StateKind } from "../../api/types.ts";
import { pretty } from "../../base/json.ts";
import { may } from "../../data/session.ts";
import { draftOf, setDraft } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { Code, RawBlock } from "../../ui/raw.tsx";
import { Empty } from "../../ui/state.tsx";
import { Countdown, Time } from "../../ui/time.tsx";
import { Row } from "../tools/why.tsx";
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
  if (!entry && !draft) return <Empty title={t.noEntry} />;
  const hidesCookies = entry !== null && (entry.data as { redacted?: unknown } | null)?.redacted === true && kind === "cache";
  return (
    <section class="card stack" aria-label={t.kind[kind]}>
      <div class="card-head">
        <h2>{t.kind[kind]}</h2>
        {entry && !draft && !hidesCookies && may("state:write") && (
          <button type="button" onClick={() => setDraft(id, kind, { text: pretty(entry.data), base: entry, ttl: "" })}>
            {t.edit}
          </button>
        )}
      </div>
      {entry && <Facts entry={entry} />}
      {hidesCookies && <p class="quiet">{t.cookies}</p>}
      {draft ? <Edit id={id} kind={kind} draft={draft} current={entry} reread={reread} /> : entry && <RawBlock text={pretty(entry.data)} label={t.json} />}
    </section>
  );
}

function Facts({ entry }: { entry: StateEntry }) {
  const t = texts.value.contexts;
  return (
    <dl class="facts">
      {entry.version > 0 && (
        <Row name={t.version}>
          <span class="num">{entry.version}</span> {entry.etag && <Code text={entry.etag} />}
        </Row>
      )}
      <Row name={t.updated}>
        <Time at={entry.updatedAt} />
      </Row>
      <Row name={t.created}>
        <Time at={entry.createdAt} />
      </Row>
      <Row name={t.expires}>
        {entry.expiresAt ? <><Time at={entry.expiresAt} /> (<Countdown until={entry.expiresAt} />)</> : t.never}
      </Row>
    </dl>
  );
}
