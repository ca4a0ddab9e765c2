// Standing grants: what is allowed without asking again, and how to take it back.

import type { Grant } from "../../api/types.ts";
import { grants, revokeGrant } from "../../data/approvals.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Empty } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

export function Grants({ list }: { list: readonly Grant[] }) {
  const t = texts.value.grants;
  if (list.length === 0) return <Empty title={t.none} text={t.noneText} />;
  return (
    <section class="card">
      <p class="quiet">{t.text}</p>
      <div class="scroll" tabIndex={0} role="group" aria-label={t.title}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t.covers}</th>
              <th scope="col">{t.rule}</th>
              <th scope="col">{t.by}</th>
              <th scope="col">{t.at}</th>
              <th scope="col">
                <span class="hidden">{t.actions}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((grant) => (
              <tr key={grant.id}>
                <td>
                  <Covers grant={grant} />
                  {grant.changedTools.length > 0 && (
                    <div class="warn-text">
                      {t.changed} {grant.changedTools.map((name) => <Code key={name} text={name} />)}
                    </div>
                  )}
                </td>
                <td>
                  <Raw text={grant.rule} limit={300} />
                </td>
                <td>
                  <Raw text={grant.grantedBy} limit={128} />
                </td>
                <td>
                  <Time at={grant.grantedAt} />
                </td>
                <td class="right">
                  {may("approvals:write") && (
                    <ActButton class="danger" act={() => revokeGrant(grant.id).then(() => (say(t.revoked), grants.read()))}>
                      {t.revoke}
                    </ActButton>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Covers({ grant: { covers } }: { grant: Grant }) {
  const t = texts.value.grants;
  switch (covers.scope) {
    case "thread":
      return (
        <>
          <Code text={covers.tool} /> {t.inThread} <Code text={covers.threadId} limit={60} />
        </>
      );
    case "tool":
      return (
        <>
          <Code text={covers.tool} /> {t.everywhere}
        </>
      );
    case "server":
      return (
        <>
          {t.server} <Code text={covers.server} />
        </>
      );
  }
}
