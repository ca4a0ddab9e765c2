// Standing grants: what is allowed without asking again, and how to take it back.

import type { Grant } from "../../api/types.ts";
import { grants, revokeGrant } from "../../data/approvals.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import type { Column } from "../../ui/long-list.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { RowList } from "../../ui/row-list.tsx";
import { Empty } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

export function Grants({ list }: { list: readonly Grant[] }) {
  const t = texts.value.grants;
  if (list.length === 0) return <Empty title={t.none} text={t.noneText} />;
  return (
    <section class="card">
      <p class="quiet">{t.text}</p>
      <RowList label={t.title} class="grant-list" items={list} columns={columns()} dialogTitle={t.one} />
    </section>
  );
}

function columns(): Column<Grant>[] {
  const t = texts.value.grants;
  const shown: Column<Grant>[] = [
    { name: "covers", title: t.covers, cell: (grant) => <Covered grant={grant} /> },
    { name: "rule", title: t.rule, cell: ({ rule }) => <Raw text={rule} limit={300} />, uncut: ({ rule }) => <Raw text={rule} limit={5000} /> },
    { name: "by", title: t.by, cell: ({ grantedBy }) => <Raw text={grantedBy} limit={128} /> },
    { name: "at", title: t.at, cell: ({ grantedAt }) => <Time at={grantedAt} /> },
  ];
  if (!may("approvals:write")) return shown;
  const revoke = ({ id }: Grant) => (
    <ActButton class="danger" act={() => revokeGrant(id).then(() => (say(t.revoked), grants.read()))}>
      {t.revoke}
    </ActButton>
  );
  return [...shown, { name: "actions", title: <span class="hidden">{t.actions}</span>, cell: revoke, isAction: true }];
}

function Covered({ grant }: { grant: Grant }) {
  const t = texts.value.grants;
  return (
    <>
      <span class="line-of-two">
        <Covers grant={grant} />
      </span>
      {grant.changedTools.length > 0 && (
        <span class="line-of-two warn-text">
          {t.changed} {grant.changedTools.map((name) => <span key={name}><Code text={name} /> </span>)}
        </span>
      )}
    </>
  );
}

function Covers({ grant: { covers } }: { grant: Grant }) {
  const t = texts.value.grants;
  switch (covers.scope) {
    case "thread":
      return (
        <>
          <Code text={covers.tool} /> {t.inThread} <Code text={covers.threadId} limit={128} />
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
