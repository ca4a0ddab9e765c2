// What would happen to a call: which rule decides, what is left of the rates, what stands in its way. Nothing ran.

import type { CallForecast, Explanation } from "../../../api/types.ts";
import { duration } from "../../../base/format.ts";
import { texts } from "../../../i18n/index.ts";
import { Icon, type IconName } from "../../../ui/icon.tsx";
import { Code, Raw } from "../../../ui/raw.tsx";
import { address } from "../../../ui/router.ts";
import { ToolBadge } from "../../../ui/status.tsx";
import { Countdown } from "../../../ui/time.tsx";
import { ProblemLink } from "../../calls/failure.tsx";
import { Row } from "../why.tsx";

/** An answer to a dry run, and the arguments it is about. */
export interface DryRun {
  facts: Explanation;
  of: unknown;
  /** When it was given, in the server's time. */
  at: number;
}

const looks: Record<CallForecast["result"], [tone: string, icon: IconName]> = {
  run: ["good", "check"], cached: ["good", "check"], wait: ["warn", "clock"], ask: ["warn", "question"], refused: ["bad", "cross"],
};

export function Forecast({ run, isOld }: { run: DryRun; isOld: boolean }) {
  const t = texts.value.tryIt;
  const { facts, at } = run;
  const call = facts.call;
  if (!call) return null;
  const [tone, icon] = looks[call.result];
  return (
    <section class="card result" aria-labelledby="forecast">
      <h2 id="forecast">{t.dryRun}</h2>
      <div role="status" class={`callout ${tone}`}>
        <Icon name={icon} />
        <div class="grow">
          <strong>{t.forecast[call.result]}</strong> {call.result === "wait" && duration(call.waitsMs)} {call.error && <ProblemLink code={call.error.code} />}
          {call.error && call.error.code !== "arguments_invalid" && <div><Raw text={call.error.detail} limit={1000} /></div>}
          {isOld && <div>{t.changedSince}</div>}
        </div>
      </div>
      <Problems of={call.problems} />
      <dl class="facts">
        <Row name={t.rule}>
          {t.decision[call.rule.decision]} · <Raw text={call.rule.rule} limit={600} />
          {call.rule.reason && <> · <Raw text={call.rule.reason} limit={600} /></>}
        </Row>
        {call.grant && (
          <Row name={t.grant}>
            <a href={address.approval(call.grant.approval)}>
              <Code text={call.grant.approval} />
            </a>
          </Row>
        )}
        {facts.status !== "available" && (
          <Row name={texts.value.why.status}>
            <ToolBadge status={facts.status} /> <Raw text={facts.reason} limit={600} />
          </Row>
        )}
        <Row name={t.needsFirst}>
          {(facts.missing ?? []).length === 0 ? t.nothing : (facts.missing ?? []).map((name) => (
            <a key={name} href={address.tool(name)} class="spaced">
              <Code text={name} />
            </a>
          ))}
        </Row>
        {call.rates.map((quota) => (
          <Row key={quota.name} name={texts.value.limits.rate(quota.limit.requests, duration(quota.limit.per))}>
            <span class="num">{texts.value.limits.remaining(quota.remaining)}</span>
            {quota.resetsInMs > 0 && <> · {texts.value.limits.fullIn} <Countdown until={at + quota.resetsInMs} /></>}
          </Row>
        ))}
        <Row name={t.cache}>{t.cacheSays[call.cache]}</Row>
      </dl>
      {call.hooks && <p class="quiet">{t.hooksText}</p>}
    </section>
  );
}

/** What is wrong with the arguments, and where. */
export const Problems = ({ of }: { of: readonly { pointer: string; detail: string }[] }) =>
  of.length > 0 ? (
    <ul class="plain-list">
      {of.map(({ pointer, detail }, index) => (
        <li key={index}>
          <Code text={pointer || "/"} /> <Raw text={detail} limit={300} />
        </li>
      ))}
    </ul>
  ) : null;
