// The time until a tool's status changes by itself. Asked for only by rows in view.

import { useMemo } from "preact/hooks";
import type { ToolStatus } from "../../api/types.ts";
import { useResource } from "../../data/resource.ts";
import { explanationOf } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Countdown } from "../../ui/time.tsx";

export function Left({ name, status }: { name: string; status: ToolStatus }) {
  const explanation = useMemo(() => explanationOf(name, ""), [name]);
  const found = useResource(explanation).value;
  const left = found?.value.status === status ? found.value.changesInMs : null;
  if (!found || left === null || left === undefined) return null;
  return (
    <span class="left">
      <Countdown until={found.at + left} label={texts.value.attention.changes[status]} />
    </span>
  );
}
