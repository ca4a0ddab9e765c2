// Makes a key from a preset or single scopes, and shows it once.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { ApiError } from "../../api/client.ts";
import type { CreatedKey, Scope } from "../../api/types.ts";
import { keys } from "../../data/facts.ts";
import { allScopes, createKey, presets } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { CopyButton } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Icon } from "../../ui/icon.tsx";
import { Failure } from "../../ui/notice.tsx";
import { Code } from "../../ui/raw.tsx";

/** The key that was made last, until a person says that it is stored. Only in the memory of this page. */
export const createdKey = signal<CreatedKey | null>(null);

export function CreatedKeyCard({ made }: { made: CreatedKey }) {
  const t = texts.value.settings;
  return (
    <div class="callout good new-key" role="status">
      <Icon name="check" />
      <div class="grow">
        <p>
          <strong>{t.created(made.name)}</strong> {t.once}
        </p>
        <p class="command">
          <Code text={made.key} /> <CopyButton text={made.key} />
        </p>
      </div>
      <button type="button" onClick={() => (createdKey.value = null)}>
        {t.copied}
      </button>
    </div>
  );
}

type Preset = keyof typeof presets | "custom";
const presetNames = [...(Object.keys(presets) as (keyof typeof presets)[]), "custom"] as const;
const days = [1, 30, 90, 365];

export function NewKeyDialog({ close }: { close: () => void }) {
  const t = texts.value.settings;
  const [name, setName] = useState("");
  const [preset, setPreset] = useState<Preset>("viewer");
  const [chosen, choose] = useState<readonly Scope[]>(["tools:read"]);
  const [expiry, setExpiry] = useState("90d");
  const [other, setOther] = useState("12h");
  const [tenant, setTenant] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const scopes: readonly Scope[] = preset === "custom" ? chosen : presets[preset];
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(null);
    const expiresIn = (expiry === "other" ? other : expiry).trim();
    try {
      createdKey.value = await createKey({ name: name.trim(), scopes, ...(expiresIn && { expiresIn }), ...(tenant.trim() && { tenant: tenant.trim() }) });
      void keys.read();
      close();
    } catch (failure) {
      setError(failure instanceof ApiError ? failure : new ApiError(0, String(failure)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={t.newKeyTitle} close={close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <label>
          {t.name}
          <input type="text" name="name" required maxLength={128} autofocus autocomplete="off" value={name} aria-describedby="key-name" onInput={(event) => setName(event.currentTarget.value)} />
          <span class="quiet" id="key-name">{t.nameText}</span>
        </label>
        <fieldset>
          <legend>{t.preset}</legend>
          <div class="choices lines">
            {presetNames.map((one) => (
              <label key={one}>
                <input type="radio" name="preset" value={one} checked={preset === one} onChange={() => (setPreset(one), one === "custom" && choose(scopes))} />
                {t.presets[one]}
              </label>
            ))}
          </div>
        </fieldset>
        <fieldset>
          <legend>{t.scopes}</legend>
          <div class="choices">
            {allScopes.map((scope) => (
              <label key={scope}>
                <input
                  type="checkbox"
                  name={scope}
                  disabled={preset !== "custom"}
                  checked={scopes.includes(scope)}
                  onChange={(event) => choose(event.currentTarget.checked ? [...chosen, scope] : chosen.filter((one) => one !== scope))}
                />
                <span data-raw>{scope}</span>
              </label>
            ))}
          </div>
        </fieldset>
        <label>
          {t.expiry}
          <select name="expiry" value={expiry} onChange={(event) => setExpiry(event.currentTarget.value)}>
            {days.map((count) => (
              <option key={count} value={`${count}d`}>{t.after(count)}</option>
            ))}
            <option value="other">{t.afterOther}</option>
            <option value="">{t.never}</option>
          </select>
        </label>
        {expiry === "other" && <input type="text" name="expires-in" aria-label={t.expiry} placeholder="12h 30d 2w" required value={other} onInput={(event) => setOther(event.currentTarget.value)} />}
        <label>
          {t.tenant}
          <input type="text" name="tenant" autocomplete="off" value={tenant} aria-describedby="key-tenant" onInput={(event) => setTenant(event.currentTarget.value)} />
          <span class="quiet" id="key-tenant">{t.tenantText}</span>
        </label>
        {error && (
          <p class="error-text" role="alert">
            <Failure error={error} />
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" onClick={close}>
            {texts.value.common.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy || !name.trim() || scopes.length === 0}>
            {t.create}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
