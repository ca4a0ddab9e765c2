// What a page shows instead of its content: while it is read, when that failed, and when there is nothing.

import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/client.ts";
import type { Resource, Snapshot } from "../data/resource.ts";
import { texts } from "../i18n/index.ts";
import { Command } from "./button.tsx";
import { Fresh } from "./fresh.tsx";
import { Icon } from "./icon.tsx";
import { Failure } from "./notice.tsx";

/** The content once it was read. A failure of a later reading leaves it, grey. */
export function Loaded<T>({ of, children }: { of: Resource<T>; children: (snapshot: Snapshot<T>) => ComponentChildren }) {
  const snapshot = of.data.value;
  if (snapshot) return <Fresh of={snapshot}>{children(snapshot)}</Fresh>;
  return of.error.value ? <ReadFailure error={of.error.value} retry={() => void of.read()} /> : <Loading />;
}

export const Loading = () => (
  <p class="quiet loading" role="status">
    {texts.value.common.loading}
  </p>
);

export function ReadFailure({ error, retry }: { error: ApiError; retry: () => void }) {
  return (
    <div class="callout bad">
      <Icon name="warning" />
      <div class="grow">
        <Failure error={error} />
      </div>
      <button type="button" onClick={retry}>
        {texts.value.common.retry}
      </button>
    </div>
  );
}

export function Empty({ title, text, command }: { title: string; text?: string; command?: string }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {text && <p class="quiet">{text}</p>}
      {command && <Command text={command} />}
    </div>
  );
}
