// A line of the last values, without axes. The number beside it says the last one.

import { sparkPath } from "../base/line-path.ts";

export function Spark({ values, slots = 60 }: { values: readonly (number | null)[]; slots?: number }) {
  return (
    <svg class="spark" viewBox="0 0 120 24" preserveAspectRatio="none" aria-hidden="true">
      <path d={sparkPath(values, slots, 120, 24)} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
