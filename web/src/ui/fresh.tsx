// Marks values that were read before the connection was lost: grey, with the time at which they held.

import type { ComponentChildren } from "preact";
import { isOld, type Snapshot } from "../data/resource.ts";
import { texts } from "../i18n/index.ts";
import { Time } from "./time.tsx";

export function Fresh({ of, children, label = true }: { of: Snapshot<unknown> | null; children: ComponentChildren; label?: boolean }) {
  const old = of !== null && isOld(of);
  return (
    <div class={old ? "fresh old" : "fresh"}>
      {children}
      {old && label && <AsOf at={of.at} />}
    </div>
  );
}

export const AsOf = ({ at }: { at: number }) => (
  <span class="as-of">
    {texts.value.common.asOf} <Time at={at} />
  </span>
);
