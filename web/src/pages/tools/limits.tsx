// The rules and limits of a tool's calls as they hold now.

import { useMemo } from "preact/hooks";
import type { Explanation, RateLimit, Tool, ToolLimits } from "../../api/types.ts";
import { bytes, duration, number } from "../../base/format.ts";
import { useResource } from "../../data/resource.ts";
import { explanationOf } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { Countdown } from "../../ui/time.tsx";
import { Row } from "./why.tsx";

export function Limits({ tool }: { tool: Tool }) {
  const explanation = useMemo(() => explanationOf(tool.name, ""), [tool.name]);
  useResource(explanation);
  return (
    <Loaded of={explanation}>
      {(snapshot) => (
        <div class="columns even">
          <Rules facts={snapshot.value} at={snapshot.at} />
          <Effective limits={snapshot.value.policy} />
        </div>
      )}
    </Loaded>
  );
}

function Rules({ facts, at }: { facts: Explanation; at: number }) {
  const t = texts.value.limits;
  return (
    <section class="card">
      <h2>{t.rules}</h2>
      <p class="quiet">{t.rulesText}</p>
      <ol class="rules">
        {facts.rules.map((rule, index) => (
          <li key={index}>
            <Raw text={rule} limit={600} />
          </li>
        ))}
      </ol>
      {(facts.grants ?? []).length > 0 && (
        <p>
          <a href={address.approvals("grants")}>{t.grants((facts.grants ?? []).length)}</a>
        </p>
      )}
      {(facts.rates ?? []).length > 0 && (
        <>
          <h3>{t.quotas}</h3>
          <dl class="facts">
            {(facts.rates ?? []).map((quota) => (
              <Row key={quota.name} name={t.rate(quota.limit.requests, duration(quota.limit.per))}>
                <span class="num">{t.remaining(quota.remaining)}</span>
                {quota.resetsInMs > 0 && <> · {t.fullIn} <Countdown until={at + quota.resetsInMs} /></>}
              </Row>
            ))}
          </dl>
        </>
      )}
    </section>
  );
}

function Effective({ limits }: { limits: ToolLimits }) {
  const t = texts.value.limits;
  const { retry } = limits;
  const rate = (limit: RateLimit) => `${t.rate(limit.requests, duration(limit.per))} · ${t.scope[limit.scope]} · ${limit.onExcess === "reject" ? t.reject : t.wait(duration(limit.onExcess.wait.atMost))}`;
  return (
    <section class="card">
      <h2>{t.title}</h2>
      <dl class="facts">
        <Row name={t.timeout}>{duration(limits.timeoutMs)}</Row>
        {limits.attemptTimeoutMs != null && <Row name={t.attemptTimeout}>{duration(limits.attemptTimeoutMs)}</Row>}
        {limits.idleTimeoutMs != null && <Row name={t.idleTimeout}>{duration(limits.idleTimeoutMs)}</Row>}
        <Row name={t.retries}>{retry.attempts <= 1 ? t.noRetries : t.attempts(retry.attempts, duration(retry.first), duration(retry.longest))}</Row>
        <Row name={t.rates}>{(limits.rateLimits ?? []).length === 0 ? t.none : (limits.rateLimits ?? []).map((limit, index) => <div key={index}>{rate(limit)}</div>)}</Row>
        <Row name={t.concurrency}>
          {limits.maxConcurrency == null && limits.maxConcurrencyShared == null ? t.none : null}
          {limits.maxConcurrency != null && <div>{t.perNode(limits.maxConcurrency)}</div>}
          {limits.maxConcurrencyShared != null && <div>{t.allNodes(limits.maxConcurrencyShared)}</div>}
        </Row>
        <Row name={t.queue}>{duration(limits.queueTimeoutMs)}</Row>
        <Row name={t.cache}>{limits.cacheMs == null ? t.off : duration(limits.cacheMs)}</Row>
        <Row name={t.approval}>{limits.confirm ? t.everyCall : t.byRules}</Row>
        <Row name={t.approvalTimeout}>{duration(limits.approvalTimeoutMs)}</Row>
        <Row name={t.textLimit}>{t.characters(number(limits.text))}</Row>
        <Row name={t.outputLimit}>{bytes(limits.output)}</Row>
        <Row name={t.parallel}>{limits.parallelSafe ? <span>{t.yes}</span> : <span>{t.no}</span>}</Row>
      </dl>
    </section>
  );
}

