// The last calls of a tool, and those that were refused before they reached it.

import { useMemo } from "preact/hooks";
import type { Call } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { newestCalls, readCallFilter } from "../../data/calls.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { CallBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";
import { Refusals } from "../calls/refusals.tsx";

/** More of them are on the page of all calls. */
const maxRows = 25;

export function Calls({ name }: { name: string }) {
  const t = texts.value.calls;
  const filter = useMemo(() => readCallFilter(new URLSearchParams({ tool: name })), [name]);
  const newest = useMemo(() => newestCalls(filter), [filter]);
  useResource(newest);
  return (
    <>
      <section class="card" aria-labelledby="calls">
        <div class="card-head">
          <h2 id="calls">{t.title}</h2>
          <a href={address.calls(new URLSearchParams({ tool: name }).toString())}>{t.all}</a>
        </div>
        <Loaded of={newest}>
          {(snapshot) =>
            snapshot.value.items.length === 0 ? (
              <Empty title={t.none} command={`toolhub call ${name}`} />
            ) : (
              <Table list={snapshot.value.items.slice(0, maxRows)} />
            )
          }
        </Loaded>
      </section>
      <Refusals filter={filter} isOfTool />
    </>
  );
}

function Table({ list }: { list: readonly Call[] }) {
  const t = texts.value.calls;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={t.title}>
      <table class="calls">
        <thead>
          <tr>
            <th scope="col">{t.started}</th>
            <th scope="col">{t.status}</th>
            <th scope="col">{t.duration}</th>
            <th scope="col">{t.attempts}</th>
            <th scope="col">{t.thread}</th>
            <th scope="col">{t.caller}</th>
            <th scope="col">{t.error}</th>
          </tr>
        </thead>
        <tbody>
          {list.map((call) => (
            <tr key={call.id}>
              <td>
                <a href={address.call(call.id)}>
                  <Time at={call.startedAt} />
                </a>
              </td>
              <td>
                <CallBadge status={call.status} />
              </td>
              <td class="num">{call.durationMs != null && duration(call.durationMs)}</td>
              <td class="num">{call.attempts}</td>
              <td>{call.threadId && <Code text={call.threadId} limit={40} />}</td>
              <td>{call.caller && <Raw text={call.caller} limit={40} />}</td>
              <td>{call.error && <Code text={call.error.code} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
