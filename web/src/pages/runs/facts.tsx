// The numbers of a run beside the limits of its agent.

import type { Agent, Run } from "../../api/types.ts";
import { duration, number } from "../../base/format.ts";
import { runMs } from "../../data/runs.ts";
import { texts } from "../../i18n/index.ts";
import { Row } from "../tools/why.tsx";

/** Steps, tokens and time; each with its limit, if it has one. The limits are those of the agent as it is defined now. */
export function Numbers({ run, agent }: { run: Run; agent: Agent | undefined }) {
  const t = texts.value.runs;
  const { inputTokens, outputTokens } = run.usage;
  return (
    <>
      <Row name={t.steps}>
        <Limit used={String(run.steps)} limit={agent && String(agent.maxSteps)} />
      </Row>
      <Row name={t.tokens}>
        <Limit used={number(inputTokens + outputTokens)} limit={agent?.tokenBudget ? number(agent.tokenBudget) : undefined} />
        <span class="quiet"> · {t.tokensOf(number(inputTokens), number(outputTokens))}</span>
      </Row>
      <Row name={texts.value.calls.duration}>
        <Limit used={duration(runMs(run))} limit={agent?.timeBudgetMs ? duration(agent.timeBudgetMs) : undefined} />
      </Row>
    </>
  );
}

const Limit = ({ used, limit }: { used: string; limit: string | undefined }) => (
  <span class="num">
    {used}
    {limit && <span class="quiet"> {texts.value.runs.ofLimit(limit)}</span>}
  </span>
);
