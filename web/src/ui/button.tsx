// Buttons whose act takes time: not to be pressed twice, and a failure is said.

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { copyText } from "../base/page.ts";
import { texts } from "../i18n/index.ts";
import { Icon } from "./icon.tsx";
import { sayError } from "./notice.tsx";

type Props = Omit<JSX.IntrinsicElements["button"], "onClick"> & {
  act: () => Promise<unknown>;
  children: ComponentChildren;
};

export function ActButton({ act, children, disabled, ...rest }: Props) {
  const [isBusy, setBusy] = useState(false);
  const run = () => {
    if (isBusy || disabled) return;
    setBusy(true);
    act().catch(sayError).finally(() => setBusy(false));
  };
  return (
    <button type="button" {...rest} disabled={disabled} aria-busy={isBusy} onClick={run}>
      {children}
    </button>
  );
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const t = texts.value.common;
  const copy = async () => {
    setCopied(await copyText(text));
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <button type="button" class="icon-button" aria-label={label ?? t.copy} title={isCopied ? t.copied : t.copy} onClick={() => void copy()}>
      <Icon name={isCopied ? "check" : "copy"} />
      {isCopied && <span class="hidden" role="status">{t.copied}</span>}
    </button>
  );
}

/** A command to run in a terminal. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code data-raw>{text}</code>
      <CopyButton text={text} />
    </div>
  );
}
