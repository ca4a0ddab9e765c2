// Calls that were refused before they reached the tool. The server remembers the last ones of this process.

import { useMemo } from "preact/hooks";
import { get, withQuery } from "../../api/client.ts";
import type { Page, Refusal } from "../../api/types.ts";
import { Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Fresh } from "../../ui/fresh.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

export function Refusals({ tool }: { tool: string }) {
  const t = texts.value.calls;
  const resource = useMemo(() => new Resource<Page<Refusal>>(() => get(withQuery("/api/v1/refusals", { tool, limit: 50 })), { everyMs: 5_000 }), [tool]);
  useResource(resource);
  return (
    <section class="card" aria-labelledby="refusals">
      <h2 id="refusals">{t.refusals}</h2>
      <Loaded of={resource}>
        {(snapshot) =>
          snapshot.value.items.length === 0 ? (
            <Empty title={t.noRefusals} />
          ) : (
            <Fresh of={snapshot}>
              <div class="scroll" tabIndex={0} role="group" aria-label={t.refusals}>
                <table>
                  <thead>
                    <tr>
                      <th scope="col">{t.when}</th>
                      <th scope="col">{t.error}</th>
                      <th scope="col">{t.text}</th>
                      <th scope="col">{t.thread}</th>
                      <th scope="col">{t.caller}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {snapshot.value.items.map((refusal, index) => (
                      <tr key={index}>
                        <td><Time at={refusal.at} /></td>
                        <td><Code text={refusal.code} /></td>
                        <td><Raw text={refusal.text} limit={300} /></td>
                        <td>{refusal.threadId && <Code text={refusal.threadId} limit={40} />}</td>
                        <td>{refusal.caller && <Raw text={refusal.caller} limit={40} />}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </Fresh>
          )
        }
      </Loaded>
    </section>
  );
}
