// Buttons whose act takes time: not to be pressed twice, and a failure is said.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
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

/** Without a secure context, such as plain http to another host, a browser lets no page copy: the text is then selected for the person. */
export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [state, setState] = useState<"ready" | "copied" | "refused">("ready");
  const field = useRef<HTMLTextAreaElement>(null);
  const t = texts.value.common;
  const copy = async () => {
    const isCopied = await copyText(text);
    setState(isCopied ? "copied" : "refused");
    if (isCopied) setTimeout(() => setState("ready"), 2000);
    else field.current?.select();
  };
  useEffect(() => {
    if (state !== "refused") return;
    field.current?.focus();
    field.current?.select();
  }, [state]);
  const isCopied = state === "copied";
  return (
    <>
      <button type="button" class="icon-button" aria-label={label ?? t.copy} title={isCopied ? t.copied : t.copy} onClick={() => void copy()}>
        <Icon name={isCopied ? "check" : "copy"} />
        {isCopied && <span class="hidden" role="status">{t.copied}</span>}
      </button>
      {state === "refused" && (
        <span class="copy-by-hand">
          <textarea ref={field} readOnly rows={1} aria-label={t.text} value={text} />
          <span class="quiet" role="status">{t.copyByHand}</span>
        </span>
      )}
    </>
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
