// What a reload did: what changed, what waits for a restart, or what is wrong with the file and where.

import { info } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { lastReload } from "../../data/settings.ts";
import { pendingRestart } from "../../data/restarts.ts";
import { texts } from "../../i18n/index.ts";
import { Failure } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Time } from "../../ui/time.tsx";
import { Names } from "./names.tsx";

const parts = ["added", "replaced", "removed", "sections", "needsRestart"] as const;

export function ReloadReport() {
  const t = texts.value.settings;
  const last = lastReload.value;
  useResource(info);
  const waiting = pendingRestart.value;
  if (last?.error) {
    return (
      <div class="callout bad reload" role="alert">
        <div>
          <strong>{t.notReloaded}</strong> <Time at={last.at} />
          <p>
            <Failure error={last.error} />
          </p>
          {last.problems.map((problem, index) => (
            <p key={index}>
              <Code text={problem.place} /> <Raw text={problem.detail} limit={1000} /> · <Raw text={problem.hint ?? ""} limit={1000} />
            </p>
          ))}
        </div>
      </div>
    );
  }
  if (!last && waiting.length === 0) return null;
  // What waits may be from an earlier reload, and no longer waits once the server was restarted.
  const report: Partial<Record<(typeof parts)[number], readonly string[]>> = { ...last?.report, needsRestart: waiting };
  const changed = parts.filter((part) => report[part]?.length);
  return (
    <div class={last ? "callout good reload" : "callout warn reload"} role="status">
      <div>
        {last && <><strong>{t.reloaded}</strong> <Time at={last.at} /></>} {changed.length === 0 && t.nothingChanged}
        {changed.map((part) => (
          <p key={part}>
            {t.changes[part]} <Names of={report[part] ?? []} />
          </p>
        ))}
      </div>
    </div>
  );
}
