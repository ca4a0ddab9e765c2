// Changes the data of a state. When another writes it meanwhile, what both did is shown and put together.

import { useState } from "preact/hooks";
import { type ApiError, toApiError } from "../../api/client.ts";
import type { StateEntry, StateKind } from "../../api/types.ts";
import { now } from "../../base/clock.ts";
import { parseMembers } from "../../base/exact-json.ts";
import { type Json, pretty } from "../../base/json.ts";
import { may } from "../../data/session.ts";
import { type Draft, isSameWrite, needsTtl, saveState, setDraft } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { Confirm } from "../../ui/confirm.tsx";
import { Diff } from "../../ui/diff.tsx";
import { JsonField } from "../../ui/json-field.tsx";
import { Failure, say } from "../../ui/notice.tsx";
import { Conflict } from "./conflict.tsx";

interface Props {
  id: string;
  kind: StateKind;
  draft: Draft;
  /** The state as it is now. */
  current: StateEntry | null;
  reread: () => Promise<void>;
}

export function Edit({ id, kind, draft, current, reread }: Props) {
  const t = texts.value.contexts;
  const [isBusy, setBusy] = useState(false);
  const [isAsking, ask] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const change = (next: Partial<Draft>) => (setError(null), setDraft(id, kind, { ...draft, ...next }));
  const parsed = parseMembers(draft.text);
  // The time may run out while the page is open.
  const isTtlMissing = now.value > 0 && needsTtl(draft, current);
  const isConflict = !isBusy && !isSameWrite(draft.base, current);
  const save = async (data: Json) => {
    setBusy(true);
    setError(null);
    try {
      const isSaved = await saveState(id, kind, draft, data);
      // Read first: the old data must not be seen after the new.
      await reread();
      if (!isSaved) return;
      setDraft(id, kind, null);
      say(t.saved);
    } catch (failure) {
      setError(toApiError(failure));
    } finally {
      setBusy(false);
    }
  };
  const before = draft.base ? pretty(draft.base.data) : "";
  const discard = () => setDraft(id, kind, null);
  return (
    <div class="form">
      {isConflict && <Conflict draft={draft} parsed={parsed} current={current} change={change} />}
      <JsonField label={t.json} name="data" text={draft.text} parsed={parsed} change={(text) => change({ text })} />
      <label>
        {t.ttl}
        <input type="text" name="ttl" placeholder={t.ttlText} required={isTtlMissing} autocomplete="off" value={draft.ttl} onInput={(event) => change({ ttl: event.currentTarget.value.trim() })} />
      </label>
      {isTtlMissing && <p class="error-text" role="alert">{t.ttlOver}</p>}
      {"value" in parsed && !isConflict && <Diff before={before} after={pretty(parsed.value)} />}
      {error && (
        <p class="error-text" role="alert">
          <Failure error={error} />
        </p>
      )}
      <div class="answers">
        <button type="button" class="primary" disabled={isBusy || isConflict || isTtlMissing || "error" in parsed || !may("state:write")} onClick={() => "value" in parsed && void save(parsed.value)}>
          {t.save}
        </button>
        {draft.mine !== undefined && draft.mine !== draft.text && (
          <button type="button" disabled={isBusy} onClick={() => change({ text: draft.mine ?? "" })}>
            {t.back}
          </button>
        )}
        <button type="button" disabled={isBusy} onClick={() => (draft.text === before && !draft.ttl ? discard() : ask(true))}>
          {t.discard}
        </button>
      </div>
      {isAsking && <Confirm title={t.discardAsk} word={t.discard} close={() => ask(false)} act={async () => discard()} />}
    </div>
  );
}
