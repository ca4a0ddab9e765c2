// Somebody wrote the state while it was being changed: base, theirs and mine beside each other, and how to go on.

import type { StateEntry } from "../../api/types.ts";
import type { Parsed } from "../../base/exact-json.ts";
import { type Json, pretty } from "../../base/json.ts";
import { mergeJson } from "../../base/merge.ts";
import type { Draft } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { Diff } from "../../ui/diff.tsx";
import { Icon } from "../../ui/icon.tsx";
import { Code, RawBlock } from "../../ui/raw.tsx";

interface Props {
  draft: Draft;
  parsed: Parsed;
  current: StateEntry | null;
  change: (next: Partial<Draft>) => void;
}

export function Conflict({ draft, parsed, current, change }: Props) {
  const t = texts.value.contexts;
  const base = (draft.base?.data ?? {}) as Json;
  const merged = "value" in parsed && current ? mergeJson(base, parsed.value, current.data as Json) : null;
  const before = pretty(base);
  return (
    <div class="conflict" role="alert">
      <p class="callout warn">
        <Icon name="warning" />
        <span>
          <strong>{current ? t.conflict : t.conflictDeleted}.</strong> {t.conflictText}
        </span>
      </p>
      <div class="three">
        <div>
          <h3>{t.base}{draft.base && ` (${draft.base.version})`}</h3>
          <RawBlock text={before} label={t.base} />
        </div>
        {current && (
          <div data-side="theirs">
            <h3>{t.theirs} ({current.version})</h3>
            <Diff before={before} after={pretty(current.data)} />
          </div>
        )}
        <div data-side="mine">
          <h3>{t.mine}</h3>
          <Diff before={before} after={"value" in parsed ? pretty(parsed.value) : draft.text} />
        </div>
      </div>
      {merged && merged.clashes.length > 0 && (
        <p>
          {t.clashes} {merged.clashes.slice(0, 20).map((pointer) => <Code key={pointer} text={pointer} />)}
        </p>
      )}
      <div class="answers">
        {current && (
          <button type="button" onClick={() => change({ text: pretty(current.data), base: current, mine: draft.text })}>
            {t.useTheirs}
          </button>
        )}
        {merged && (
          <button type="button" class="primary" onClick={() => change({ text: pretty(merged.value), base: current, mine: draft.text })}>
            {t.useMine}
          </button>
        )}
        {!current && (
          <button type="button" class="primary" onClick={() => change({ base: null })}>
            {t.createMine}
          </button>
        )}
      </div>
    </div>
  );
}
