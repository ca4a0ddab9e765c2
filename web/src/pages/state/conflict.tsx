// Somebody wrote the state while it was being changed: base, theirs and mine beside each other, and how to go on.

import type { StateEntry } from "../../api/types.ts";
import type { Parsed } from "../../base/exact-json.ts";
import { type Json, pretty } from "../../base/json.ts";
import { mergeJson } from "../../base/merge.ts";
import type { Draft } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { Diff } from "../../ui/diff.tsx";
import { Code, RawBlock } from "../../ui/raw.tsx";

interface Props {
  draft: Draft;
  parsed: Parsed;
  /** Theirs; null if they deleted it. */
  current: StateEntry | null;
  change: (next: Partial<Draft>) => void;
}

export function Conflict({ draft, parsed, current, change }: Props) {
  const t = texts.value.contexts;
  const base = (draft.base?.data ?? {}) as Json;
  const before = pretty(base);
  const merged = "value" in parsed && current ? mergeJson(base, parsed.value, current.data as Json) : null;
  const goOn = (text: string) => change({ text, base: current, mine: draft.text });
  return (
    <div class="stack conflict" role="alert">
      <p class="callout warn">{current ? t.conflict : t.conflictDeleted}</p>
      <div class="three">
        <div>
          <h2>{t.base}</h2>
          <RawBlock text={before} label={t.base} />
        </div>
        <div>
          <h2>{t.theirs}</h2>
          <Diff before={before} after={current ? pretty(current.data) : ""} />
        </div>
        <div>
          <h2>{t.mine}</h2>
          <Diff before={before} after={"value" in parsed ? pretty(parsed.value) : draft.text} />
        </div>
      </div>
      {merged && merged.clashes.length > 0 && (
        <p>
          {t.clashes} {merged.clashes.slice(0, 20).map((pointer) => <Code key={pointer} text={pointer} />)}
        </p>
      )}
      <div class="answers">
        {current && <button type="button" onClick={() => goOn(pretty(current.data))}>{t.useTheirs}</button>}
        {merged && <button type="button" class="primary" onClick={() => goOn(pretty(merged.value))}>{t.useMine}</button>}
        {!current && <button type="button" class="primary" onClick={() => goOn(draft.text)}>{t.createMine}</button>}
      </div>
    </div>
  );
}
