// What stands instead of a part of the page that could not be drawn: the rest of the page goes on.

import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { texts } from "../i18n/index.ts";
import { Icon } from "./icon.tsx";
import { Raw } from "./raw.tsx";

/** `of` says what is drawn: another is tried again. */
export function Boundary({ of, children }: { of: string; children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary((failure: unknown) => console.error(failure));
  useEffect(() => () => reset(), [of]);
  if (error === undefined) return <>{children}</>;
  return (
    <div class="callout bad" role="alert">
      <Icon name="warning" />
      <div class="grow">
        <strong>{texts.value.failure.notDrawn}</strong> <Raw text={String(error)} limit={300} />
      </div>
      <button type="button" onClick={() => location.reload()}>
        {texts.value.connection.reload}
      </button>
    </div>
  );
}
