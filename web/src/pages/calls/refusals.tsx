// Calls that were refused before they reached the tool. The server remembers the last ones of this process.

import { useMemo, useState } from "preact/hooks";
import type { Refusal } from "../../api/types.ts";
import { type CallFilter, refusalsOf } from "../../data/calls.ts";
import { useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";
import { ProblemLink } from "./failure.tsx";

type RefusalFilter = Pick<CallFilter, "tool" | "thread" | "caller" | "code">;

const pageSize = 100;
const most = 2_000;

/** The refused calls that the filter selects. On the page of a tool its name is not repeated in each row. */
export function Refusals({ filter, isOfTool = false }: { filter: RefusalFilter; isOfTool?: boolean }) {
  const t = texts.value.calls;
  const [limit, setLimit] = useState(pageSize);
  const resource = useMemo(() => refusalsOf(filter, limit), [JSON.stringify(filter), limit]);
  useResource(resource);
  return (
    <section class="card" aria-labelledby="refusals">
      <h2 id="refusals">{t.refusals}</h2>
      <p class="quiet">{t.refusalsText}</p>
      <Loaded of={resource}>
        {(snapshot) =>
          snapshot.value.length === 0 ? (
            <Empty title={t.noRefusals} />
          ) : (
            <>
              <Table list={snapshot.value} isOfTool={isOfTool} />
              {snapshot.value.length >= limit && limit < most && (
                <button type="button" class="more-button" onClick={() => setLimit(limit + 4 * pageSize)}>
                  {t.olderRefusals}
                </button>
              )}
            </>
          )
        }
      </Loaded>
    </section>
  );
}

function Table({ list, isOfTool }: { list: readonly Refusal[]; isOfTool: boolean }) {
  const t = texts.value.calls;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={t.refusals}>
      <table class="refusals">
        <thead>
          <tr>
            <th scope="col">{t.when}</th>
            {!isOfTool && <th scope="col">{t.tool}</th>}
            <th scope="col">{t.error}</th>
            <th scope="col">{t.text}</th>
            <th scope="col">{t.thread}</th>
            <th scope="col">{t.caller}</th>
          </tr>
        </thead>
        <tbody>
          {list.map((refusal) => (
            <tr key={refusal.callId}>
              <td><Time at={refusal.at} /></td>
              {!isOfTool && <td><a href={address.tool(refusal.tool)}><Raw text={refusal.tool} limit={80} /></a></td>}
              <td><ProblemLink code={refusal.code} /></td>
              <td class="reason"><Raw text={refusal.text} limit={300} /></td>
              <td>{refusal.threadId && <Code text={refusal.threadId} limit={40} />}</td>
              <td><Raw text={refusal.caller} limit={40} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
