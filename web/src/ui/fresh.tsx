// Marks values that were read before the connection was lost, or that could not be read again: grey, with the time at which they held.

import type { ComponentChildren } from "preact";
import { isOld, type Snapshot } from "../data/resource.ts";
import { texts } from "../i18n/index.ts";
import { Failure } from "./notice.tsx";
import { Time } from "./time.tsx";

export function Fresh({ of, children }: { of: Snapshot<unknown>; children: ComponentChildren }) {
  const old = isOld(of);
  return (
    <div class={old ? "fresh old" : "fresh"}>
      {children}
      {old && <AsOf of={of} />}
    </div>
  );
}

export const AsOf = ({ of: { at, error } }: { of: Pick<Snapshot<unknown>, "at" | "error"> }) => (
  <span class="as-of">
    {texts.value.common.asOf} <Time at={at} />
    {error && <> · <Failure error={error} /></>}
  </span>
);
