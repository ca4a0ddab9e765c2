// How long a state lives after it is saved.

import type { StateKind } from "../../api/types.ts";
import type { Draft } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";

export function TimeToLive({ draft: { ttl }, kind, change }: { draft: Draft; kind: StateKind; change: (ttl: string) => void }) {
  const t = texts.value.contexts;
  const isSet = ttl !== "" && ttl !== "never";
  return (
    <fieldset>
      <legend>{t.ttl}</legend>
      <div class="choices">
        <label>
          <input type="radio" name="ttl" checked={ttl === ""} onChange={() => change("")} />
          {t.ttlKeep}
        </label>
        {kind !== "cache" && (
          <label>
            <input type="radio" name="ttl" checked={ttl === "never"} onChange={() => change("never")} />
            {t.ttlNever}
          </label>
        )}
        <label>
          <input type="radio" name="ttl" checked={isSet} onChange={() => change("1h")} />
          {t.ttlSet}
        </label>
        {isSet && <input type="text" name="ttl-text" aria-label={t.ttl} placeholder="30s 1h 7d" value={ttl.trim()} onInput={(event) => change(event.currentTarget.value || " ")} />}
      </div>
    </fieldset>
  );
}
