// One approval: what is asked, by whom, and the decision.

import { useMemo } from "preact/hooks";
import type { Approval, Tool } from "../../api/types.ts";
import { approvalOf } from "../../data/approvals.ts";
import { Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { ApprovalBadge, ToolBadge } from "../../ui/status.tsx";
import { Ago, Countdown, Time } from "../../ui/time.tsx";
import { Hints } from "../tools/hints.tsx";
import { Row } from "../tools/why.tsx";
import { NotFound } from "../unknown.tsx";
import { Answer, useAsking } from "./answer.tsx";
import { ConversationCard } from "./conversation.tsx";

export function ApprovalView({ id }: { id: string }) {
  const t = texts.value;
  const resource = useMemo(() => approvalOf(id), [id]);
  useResource(resource);
  const error = resource.error.value;
  if (error && (error.status === 404 || error.status === 400 || error.status === 422) && !resource.data.value) {
    return (
      <NotFound title={t.approvals.unknown} back={{ href: address.approvals(), name: t.nav.approvals, isRaw: false }}>
        <p>
          <Raw text={error.message} />
        </p>
      </NotFound>
    );
  }
  return <Loaded of={resource}>{(snapshot) => <View approval={snapshot.value} resource={resource} />}</Loaded>;
}

function View({ approval, resource }: { approval: Approval; resource: Resource<Approval> }) {
  const t = texts.value.approvals;
  const asking = useAsking(approval);
  const { tool } = asking;
  return (
    <article class="card approval" aria-labelledby="approval-title">
      <p class="crumbs wide-hidden">
        <a href={address.approvals()}>{texts.value.nav.approvals}</a>
      </p>
      <div class="page-head">
        <div class="grow">
          <h2 id="approval-title" class="tool-name">
            <a href={address.tool(approval.tool)}>
              <Code text={approval.tool} limit={80} />
            </a>{" "}
            <ApprovalBadge state={approval.state} />
          </h2>
          {tool && <Hints tool={tool} />}
        </div>
        {approval.state === "pending" && (
          <p class="time-left">
            {t.deniesItself} <Countdown until={approval.expiresAt} />
          </p>
        )}
      </div>
      <Outcome approval={approval} />
      {tool?.description && <p class="quiet"><Raw text={tool.description} limit={400} /></p>}
      <Asked approval={approval} tool={tool} />
      <h3>{t.arguments}</h3>
      <Answer approval={approval} resource={resource} asking={asking} />
      {approval.threadId && <ConversationCard threadId={approval.threadId} />}
    </article>
  );
}

function Asked({ approval, tool }: { approval: Approval; tool: Tool | null }) {
  const t = texts.value.approvals;
  return (
    <dl class="facts">
      <Row name={t.rule}>
        <Raw text={approval.rule} limit={600} />
        {approval.reason && <> · <Raw text={approval.reason} limit={600} /></>}
      </Row>
      <Row name={t.caller}>
        <Raw text={approval.caller} limit={128} />
        {approval.threadId && <> {t.inThread} <Code text={approval.threadId} limit={128} /></>}
      </Row>
      <Row name={t.asked}>
        <Ago at={approval.askedAt} />
        {approval.callWaits === false && <> · {t.callGone}</>}
      </Row>
      {tool && tool.status !== "available" && (
        <Row name={t.tool}>
          <ToolBadge status={tool.status} /> <Raw text={tool.reason} limit={300} />
        </Row>
      )}
    </dl>
  );
}

/** What became of it, said where the decision would be made. */
function Outcome({ approval }: { approval: Approval }) {
  const t = texts.value.approvals;
  if (approval.state === "pending") return null;
  const { answer } = approval;
  const isGood = approval.state === "approved" || approval.state === "used";
  return (
    <div class={`callout ${isGood ? "good" : "bad"}`} role="status" data-outcome={approval.state}>
      <Icon name={isGood ? "check" : approval.state === "timed_out" ? "clock" : "cross"} />
      <div class="grow">
        <strong>{t.became[approval.state]}</strong>
        {answer && (
          <>
            {" "}
            {t.answeredBy} <Raw text={answer.by} limit={128} /> · <Time at={answer.at} /> · {t.outcome[answer.outcome]}
          </>
        )}
        {approval.state === "timed_out" && <> · <Time at={approval.expiresAt} /></>}
        {answer?.reason && <RawBlock text={answer.reason} label={t.reason} />}
      </div>
    </div>
  );
}
