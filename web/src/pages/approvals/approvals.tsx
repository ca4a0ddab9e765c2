// Approvals: a list beside the one that is being looked at, and the standing grants.

import type { Approval, Page } from "../../api/types.ts";
import { grants, pending, recent } from "../../data/approvals.ts";
import { type Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { useKeys } from "../../ui/keyboard.ts";
import { LongList } from "../../ui/long-list.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address, go, route } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { ApprovalBadge } from "../../ui/status.tsx";
import { Tabs } from "../../ui/tabs.tsx";
import { Ago, Countdown } from "../../ui/time.tsx";
import { ApprovalView } from "./approval.tsx";
import { Grants } from "./grants.tsx";

const views = ["pending", "answered", "grants"] as const;
type View = (typeof views)[number];

export function ApprovalsPage({ id }: { id: string }) {
  const t = texts.value;
  useResource(pending);
  const asked = route.value.query.get("view");
  const isPending = pending.data.value?.value.some((approval) => approval.id === id) ?? false;
  const view: View = views.find((name) => name === asked) ?? (id && pending.data.value && !isPending && !lastPending.has(id) ? "answered" : "pending");
  if (isPending) lastPending.add(id);
  const href = (name: View) => address.approvals(name === "pending" ? "" : name);
  return (
    <section class="page">
      <h1 class={id ? "narrow-hidden" : ""}>{t.nav.approvals}</h1>
      <Tabs label={t.approvals.views} current={view} tabs={views.map((name) => ({ name, title: t.approvals.view[name], href: href(name) }))} />
      {view === "grants" ? (
        <Loaded of={grants}>{(snapshot) => <Grants list={snapshot.value} />}</Loaded>
      ) : (
        <div class={id ? "split has-detail" : "split"}>
          {view === "pending" ? <List key={view} of={pending} read={same} view={view} id={id} /> : <List key={view} of={recent} read={rowsOf} view={view} id={id} />}
          {id && <ApprovalView key={id} id={id} />}
        </div>
      )}
      {view === "grants" && <UseGrants />}
    </section>
  );
}

/** Approvals that were seen waiting: one that is answered while it is looked at stays in its list. */
const lastPending = new Set<string>();

function UseGrants() {
  useResource(grants);
  return null;
}

const same = (list: Approval[]): Approval[] => list;
const rowsOf = (rows: Page<Approval>): Approval[] => rows.items;

interface ListProps<T> {
  of: Resource<T>;
  read: (value: T) => Approval[];
  view: View;
  id: string;
}

function List<T>({ of, read, view, id }: ListProps<T>) {
  const t = texts.value.approvals;
  useResource(of);
  const list = of.data.value ? read(of.data.value.value) : [];
  const query = view === "answered" ? "?view=answered" : "";
  const move = (step: number) => {
    const at = list.findIndex((approval) => approval.id === id);
    const next = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + step))];
    if (next) go(address.approval(next.id) + query);
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
  return (
    <Loaded of={of}>
      {() =>
        list.length === 0 ? (
          <Empty
            title={view === "pending" ? t.nonePending : t.noneAnswered}
            text={view === "pending" ? t.nonePendingText : ""}
            {...(view === "pending" && { command: "toolhub call TOOL --thread demo" })}
          />
        ) : (
          <div>
            <LongList
              label={t.view[view]}
              class="approval-list"
              items={list}
              columns={[{ name: "approval", title: t.tool, cell: (approval) => <Row approval={approval} isCurrent={approval.id === id} query={query} /> }]}
              keyOf={idOf}
              selected={list.findIndex((approval) => approval.id === id)}
              row={rowHeight}
            />
            {view === "answered" && recent.data.value?.value.nextCursor && (
              <div class="list-end">
                <ActButton act={() => recent.more(() => true)}>{t.older}</ActButton>
              </div>
            )}
          </div>
        )
      }
    </Loaded>
  );
}

/** The style sheet says the same. */
const rowHeight = 56;
const idOf = ({ id }: Approval): string => id;

function Row({ approval, isCurrent, query }: { approval: Approval; isCurrent: boolean; query: string }) {
  return (
    <a href={address.approval(approval.id) + query} aria-current={isCurrent ? "true" : undefined}>
      <span class="approval-line">
        <span class="ellipsis grow">
          <Code text={approval.tool} limit={64} />
        </span>
        {approval.state === "pending" ? <Countdown until={approval.expiresAt} /> : <ApprovalBadge state={approval.state} />}
      </span>
      <span class="approval-line quiet">
        <span class="ellipsis grow">
          <Raw text={approval.threadId ?? approval.caller} limit={64} />
        </span>
        <Ago at={approval.answer?.at ?? approval.askedAt} />
      </span>
    </a>
  );
}
