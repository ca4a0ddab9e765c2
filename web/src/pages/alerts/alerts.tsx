// The targets of alerts, the alerts that hold, and what was delivered.

import { useState } from "preact/hooks";
import type { ActiveAlert, AlertTarget, AlertTestResult } from "../../api/types.ts";
import { alerts, retryDeliveries, testTarget } from "../../data/alerts.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Badge } from "../../ui/status.tsx";
import { Table } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { Deliveries } from "./deliveries.tsx";

export function AlertsPage() {
  const { nav } = texts.value;
  return (
    <section class="page">
      <div class="page-head">
        <h1>{nav.alerts}</h1>
      </div>
      {may("admin") ? <Targets /> : <p class="quiet">{texts.value.alerts.forAdmins}</p>}
    </section>
  );
}

function Targets() {
  const t = texts.value.alerts;
  useResource(alerts);
  return (
    <Loaded of={alerts}>
      {({ value }) =>
        value.length === 0
          ? <Empty title={t.none} text={t.noneText} command="toolhub config edit" />
          : <div class="stack">{value.map((target) => <Target key={target.name} target={target} />)}</div>}
    </Loaded>
  );
}

function Target({ target }: { target: AlertTarget }) {
  const t = texts.value.alerts;
  const [answer, setAnswer] = useState<AlertTestResult | null>(null);
  const [isOpen, setOpen] = useState(false);
  const { name, lastFailure, waiting } = target;
  return (
    <section class="card" aria-label={name}>
      <div class="page-head">
        <h2><Code text={name} /> <span class="tag">{target.format}</span> <State target={target} /></h2>
        <ActButton act={() => testTarget(name).then(setAnswer)}>{t.test}</ActButton>
        {(waiting > 0 || target.disabled) && <ActButton act={() => retryDeliveries(name).then(() => alerts.read())}>{t.retry}</ActButton>}
      </div>
      <p class="quiet"><Raw text={target.host} limit={200} /> · {target.on.join(", ")}</p>
      {target.disabled && <p class="error-text"><Raw text={target.disabled} limit={300} /></p>}
      {lastFailure && <p class="error-text">{t.lastAnswer}: {lastFailure.status ?? ""} <Raw text={lastFailure.answer} limit={300} /></p>}
      {answer && <p role="status">{answer.delivered ? t.delivered : t.notDelivered}: {answer.status ?? ""} <Raw text={answer.answer} limit={300} /> ({answer.durationMs} ms)</p>}
      {target.alerts.length > 0 ? <Held list={target.alerts} /> : <p class="quiet">{t.quiet}</p>}
      <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{t.deliveries}</button>
      {isOpen && <Deliveries target={name} />}
    </section>
  );
}

function State({ target }: { target: AlertTarget }) {
  const t = texts.value.alerts;
  if (target.disabled) return <Badge icon="off" tone="bad" word={t.disabled} />;
  if (target.lastFailure) return <Badge icon="warning" tone="warn" word={t.waiting(target.waiting)} />;
  return <Badge icon="check" tone="good" word={t.ok} />;
}

function Held({ list }: { list: readonly ActiveAlert[] }) {
  const t = texts.value.alerts;
  return (
    <Table label={t.held} heads={[t.condition, t.thing, t.since, t.why]}>
      {list.map((alert) => (
        <tr key={alert.id}>
          <th scope="row"><Code text={alert.condition} /></th>
          <td><Raw text={alert.thing} limit={100} /> {alert.flapping ? <span class="tag">{t.flapping}</span> : alert.pending && <span class="tag" title={t.pendingTitle}>{t.pending}</span>}</td>
          <td><Ago at={alert.since} /></td>
          <td><Raw text={alert.reason} limit={300} /></td>
        </tr>
      ))}
    </Table>
  );
}
