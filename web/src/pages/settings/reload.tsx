// What a reload did: what changed, what waits for a restart, or what is wrong with the file and where.

import { lastReload } from "../../data/settings.ts";
import { waitingRestart } from "../../data/restarts.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { Failure } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Time } from "../../ui/time.tsx";
import { Row } from "../tools/why.tsx";

const parts = ["added", "replaced", "removed", "sections", "needsRestart"] as const;

const Names = ({ of }: { of: readonly string[] }) => <>{of.slice(0, 100).map((name) => <span key={name} class="spaced"><Code text={name} /></span>)}</>;

export function ReloadReport() {
  const t = texts.value.settings;
  const last = lastReload.value;
  if (!last) return null;
  if ("error" in last) {
    return (
      <div class="callout bad reload" role="alert">
        <Icon name="warning" />
        <div class="grow">
          <p>
            <strong>{t.notReloaded}</strong> <Time at={last.at} />
          </p>
          <p>
            <Failure error={last.error} />
          </p>
          <ol class="problems">
            {last.problems.map((problem, index) => (
              <li key={index}>
                <Code text={problem.place} /> <Raw text={problem.detail} limit={1000} />
                {problem.hint && <> · <Raw text={problem.hint} limit={1000} /></>}
              </li>
            ))}
          </ol>
        </div>
      </div>
    );
  }
  const changed = parts.filter((part) => last.report[part].length > 0);
  return (
    <div class="callout good reload" role="status">
      <Icon name="check" />
      <div class="grow">
        <p>
          <strong>{t.reloaded}</strong> <Time at={last.at} /> {changed.length === 0 && t.nothingChanged}
        </p>
        <dl class="facts">
          {changed.map((part) => (
            <Row key={part} name={t.changes[part]}>
              <Names of={last.report[part]} />
            </Row>
          ))}
        </dl>
      </div>
    </div>
  );
}

export function WaitingRestart() {
  const last = lastReload.value;
  const waiting = waitingRestart.value;
  // The report of the last reload says it, too.
  if (!waiting || (last && "report" in last)) return null;
  return (
    <p class="callout warn">
      <Icon name="info" />
      <span>
        {texts.value.settings.waiting} <Names of={waiting.settings} />
      </span>
    </p>
  );
}
