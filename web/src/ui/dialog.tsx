// A dialog over the page. The browser keeps the focus inside it, closes it with Escape and gives the focus back.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { texts } from "../i18n/index.ts";
import { Icon } from "./icon.tsx";

interface Props {
  title: ComponentChildren;
  close: () => void;
  children: ComponentChildren;
  class?: string;
}

export function Dialog({ title, close, children, class: className = "" }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  // Before the next key arrives: it belongs into the field of the dialog.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  // A text that is selected up to beyond the edge ends with a click there; only one that began there closes the dialog.
  const isOutside = useRef(false);
  return (
    <dialog
      ref={element}
      class={`dialog ${className}`}
      aria-labelledby="dialog-title"
      onCancel={close}
      onPointerDown={(event) => (isOutside.current = event.target === element.current)}
      onClick={(event) => isOutside.current && event.target === element.current && close()}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id="dialog-title">{title}</h2>
          <button type="button" class="icon-button" aria-label={texts.value.common.close} onClick={close}>
            <Icon name="cross" />
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}
