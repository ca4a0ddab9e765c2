// Makes a key from a preset or single scopes.

import { useState } from "preact/hooks";
import { type ApiError, toApiError } from "../../api/client.ts";
import type { CreatedKey, Scope } from "../../api/types.ts";
import { allScopes, createKey, type Preset, presets } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { Dialog } from "../../ui/dialog.tsx";
import { Failure } from "../../ui/notice.tsx";

const sameScopes = (one: readonly Scope[], other: readonly Scope[]): boolean => allScopes.every((scope) => one.includes(scope) === other.includes(scope));

export function NewKey({ close, done }: { close: () => void; done: (key: CreatedKey) => void }) {
  const t = texts.value.settings;
  const [fields, set] = useState({ name: "", expiresIn: "90d", tenant: "" });
  const [scopes, choose] = useState<readonly Scope[]>(presets.viewer);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    try {
      done(await createKey({ name: fields.name.trim(), expiresIn: fields.expiresIn.trim(), tenant: fields.tenant.trim() }, scopes));
      close();
    } catch (failure) {
      setError(toApiError(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog title={t.newKey} close={close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <fieldset>
          <legend>{t.preset}</legend>
          <div class="choices">
            {(Object.keys(presets) as Preset[]).map((name) => (
              <label key={name}>
                <input type="radio" name="preset" checked={sameScopes(scopes, presets[name])} onChange={() => choose(presets[name])} />
                {t.presets[name]}
              </label>
            ))}
          </div>
        </fieldset>
        <fieldset>
          <legend>{t.scopes}</legend>
          <div class="choices">
            {allScopes.map((scope) => (
              <label key={scope}>
                <input type="checkbox" checked={scopes.includes(scope)} onChange={(event) => choose(event.currentTarget.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope))} />
                <span data-raw>{scope}</span>
              </label>
            ))}
          </div>
        </fieldset>
        {(["name", "expiresIn", "tenant"] as const).map((name) => (
          <label key={name}>
            {t.fields[name]}
            <input type="text" name={name} required={name === "name"} autofocus={name === "name"} autocomplete="off" value={fields[name]} onInput={(event) => set({ ...fields, [name]: event.currentTarget.value })} />
          </label>
        ))}
        {error && (
          <p class="error-text" role="alert">
            <Failure error={error} />
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" onClick={close}>
            {texts.value.common.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy}>
            {t.create}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
