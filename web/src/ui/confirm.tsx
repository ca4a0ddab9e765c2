// Asks before something that cannot be undone, or that somebody would miss.

import type { ComponentChildren } from "preact";
import { texts } from "../i18n/index.ts";
import { ActButton } from "./button.tsx";
import { Dialog } from "./dialog.tsx";

interface Props {
  title: string;
  /** What the button says that does it. */
  word: string;
  act: () => Promise<unknown>;
  close: () => void;
  children?: ComponentChildren;
}

export function Confirm({ title, word, act, close, children }: Props) {
  return (
    <Dialog title={title} close={close}>
      <div class="form">
        {children}
        <div class="dialog-actions">
          <button type="button" autofocus onClick={close}>
            {texts.value.common.cancel}
          </button>
          <ActButton class="primary danger" act={() => act().then(close)}>
            {word}
          </ActButton>
        </div>
      </div>
    </Dialog>
  );
}
