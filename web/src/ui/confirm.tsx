// Asks before something that cannot be undone, or whose loss a user would notice. Why it failed is said in the dialog: a notice would be behind it.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type ApiError, toApiError } from "../api/client.ts";
import { texts } from "../i18n/index.ts";
import { ActButton } from "./button.tsx";
import { Dialog } from "./dialog.tsx";
import { Failure } from "./notice.tsx";

interface Props {
  title: ComponentChildren;
  /** What the button says that does it. */
  word: string;
  act: () => Promise<unknown>;
  close: () => void;
  /** Whether it takes something away. */
  isDanger?: boolean;
  disabled?: boolean;
  children?: ComponentChildren;
}

export function Confirm({ title, word, act, close, isDanger = true, disabled, children }: Props) {
  const [error, setError] = useState<ApiError | null>(null);
  const run = () => {
    setError(null);
    return act().then(close, (failure: unknown) => setError(toApiError(failure)));
  };
  return (
    <Dialog title={title} close={close}>
      <div class="form">
        {children}
        {error && (
          <p class="error-text" role="alert">
            <Failure error={error} />
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" autofocus onClick={close}>
            {texts.value.common.cancel}
          </button>
          <ActButton class={isDanger ? "primary danger" : "primary"} disabled={disabled} act={run}>
            {word}
          </ActButton>
        </div>
      </div>
    </Dialog>
  );
}
