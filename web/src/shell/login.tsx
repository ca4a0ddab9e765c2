// Asks for an API key.

import { useState } from "preact/hooks";
import { type ApiError, toApiError } from "../api/client.ts";
import { duration } from "../base/format.ts";
import { login } from "../data/session.ts";
import { texts } from "../i18n/index.ts";
import { Command } from "../ui/button.tsx";
import { Icon } from "../ui/icon.tsx";
import { Failure } from "../ui/notice.tsx";

export function Login({ hasEnded }: { hasEnded: boolean }) {
  const t = texts.value.login;
  const [key, setKey] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    login(key.trim())
      .catch((failure: unknown) => setError(toApiError(failure)))
      .finally(() => setBusy(false));
  };
  return (
    <main class="login" id="main" tabIndex={-1}>
      <form class="card" onSubmit={submit}>
        <h1 class="brand" data-raw>Toolhub</h1>
        {hasEnded && (
          <p class="callout warn">
            <Icon name="warning" /> <span>{t.ended}</span>
          </p>
        )}
        <label>
          {t.key}
          <input
            type="password"
            name="key"
            autocomplete="current-password"
            placeholder="thk_…"
            required
            autofocus
            value={key}
            aria-invalid={error !== null}
            aria-describedby="login-error"
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </label>
        <div id="login-error" role="alert" class="error-text">
          {error && <LoginFailure error={error} />}
        </div>
        <button type="submit" class="primary" disabled={isBusy || key.trim() === ""}>
          {t.submit}
        </button>
        <p class="quiet">{t.noKey}</p>
        <Command text="toolhub keys create me --scope admin" />
      </form>
    </main>
  );
}

function LoginFailure({ error }: { error: ApiError }) {
  const t = texts.value.login;
  if (error.status === 401) return <>{t.wrong}</>;
  if (error.status === 429) return <>{t.tooMany(duration(error.retryAfterMs ?? 60_000))}</>;
  return <Failure error={error} />;
}
