// The messages to a target, newest first.

import { useMemo } from "preact/hooks";
import { deliveriesOf } from "../../data/alerts.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { Loaded } from "../../ui/state.tsx";
import { Table } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";

export function Deliveries({ target }: { target: string }) {
  const t = texts.value.alerts;
  const deliveries = useMemo(() => deliveriesOf(target), [target]);
  useResource(deliveries);
  return (
    <Loaded of={deliveries}>
      {({ value }) =>
        value.length === 0 ? <p class="quiet">{t.noDelivery}</p> : (
          <Table label={t.deliveries} heads={[t.condition, t.phase, t.state, t.attempts, t.lastAnswer]}>
            {value.map(({ message, state, attempts, last }) => (
              <tr key={message.id}>
                <th scope="row"><Code text={message.condition ?? "–"} /> <Ago at={message.at} /></th>
                <td>{t.phases[message.phase]}</td>
                <td>{t.states[state]}</td>
                <td class="num">{attempts}</td>
                <td>{last ? <>{last.status ?? ""} <Raw text={last.answer} limit={200} /></> : ""}</td>
              </tr>
            ))}
          </Table>
        )}
    </Loaded>
  );
}
