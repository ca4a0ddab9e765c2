// Short messages about what a person did: that it worked, or why not.

import { signal } from "@preact/signals";
import { type ApiError, toApiError } from "../api/client.ts";
import { texts } from "../i18n/index.ts";
import { Icon } from "./icon.tsx";
import { Raw } from "./raw.tsx";

interface Notice {
  id: number;
  text: string;
  error: ApiError | null;
}

const notices = signal<readonly Notice[]>([]);
let lastId = 0;

const drop = (id: number): void => void (notices.value = notices.value.filter((notice) => notice.id !== id));

/** Says that something worked; the message goes away by itself. */
export function say(text: string): void {
  const id = ++lastId;
  notices.value = [...notices.value.slice(-3), { id, text, error: null }];
  setTimeout(() => drop(id), 6000);
}

/** Says why something failed; the message stays until it is closed. */
export function sayError(error: unknown): void {
  const failure = toApiError(error);
  notices.value = [...notices.value.slice(-3), { id: ++lastId, text: "", error: failure }];
}

/** Why a request failed, in a sentence and with what the server advises. */
export function Failure({ error }: { error: ApiError }) {
  const t = texts.value.failure;
  if (error.status === 0) return <span>{t.noAnswer}</span>;
  if (error.status === 403 && error.code === "forbidden") return <span>{t.forbidden} <Raw text={error.message} /></span>;
  return (
    <span>
      <Raw text={error.message} />
      {error.problem?.hint && <> · <Raw text={error.problem.hint} /></>}
    </span>
  );
}

export function Notices() {
  const t = texts.value.common;
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map(({ id, text, error }) => (
        <div key={id} class={error ? "notice bad" : "notice good"}>
          <Icon name={error ? "warning" : "check"} />
          <div class="grow">{error ? <Failure error={error} /> : text}</div>
          <button type="button" class="icon-button" aria-label={t.close} onClick={() => drop(id)}>
            <Icon name="cross" />
          </button>
        </div>
      ))}
    </div>
  );
}
