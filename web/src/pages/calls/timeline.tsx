// How a call went, step by step.

import type { Call, TimelineStep } from "../../api/types.ts";
import { now } from "../../base/clock.ts";
import { duration } from "../../base/format.ts";
import { timelineLength } from "../../data/run-steps.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { type Part, Waterfall } from "../../ui/waterfall.tsx";

export function TimelineCard({ call }: { call: Call }) {
  const t = texts.value.runs;
  const steps = call.timeline ?? [];
  if (steps.length === 0) return null;
  const totalMs = timelineLength(call, now.value);
  return (
    <section class="card">
      <h2>{t.course}</h2>
      <Waterfall
        label={t.course}
        totalMs={totalMs}
        items={steps}
        keyOf={({ stage, startMs, attempt }) => `${stage} ${startMs} ${attempt}`}
        rowOf={(step) => ({ name: nameOf(step), parts: partsOf(step, totalMs), note: <Note step={step} /> })}
      />
    </section>
  );
}

function nameOf({ stage, attempt }: TimelineStep): string {
  const t = texts.value;
  if (stage === "attempt") return t.runs.attempt(attempt ?? 1);
  return stage === "closing" ? t.runs.closing : t.callStatus[stage];
}

function partsOf({ stage, startMs, endMs, waitedMs, error }: TimelineStep, totalMs: number): Part[] {
  const to = endMs ?? totalMs;
  if (stage !== "attempt") return [{ kind: stage === "awaiting_approval" || stage === "scheduled" ? "wait" : "work", from: startMs, to }];
  const attempt: Part = { kind: error ? "failed" : "work", from: startMs, to };
  return waitedMs ? [{ kind: "wait", from: startMs - waitedMs, to: startMs }, attempt] : [attempt];
}

function Note({ step: { approval, error, waitedMs } }: { step: TimelineStep }) {
  const t = texts.value;
  return (
    <>
      {waitedMs ? <>{t.runs.waitedBefore(duration(waitedMs))} </> : null}
      {error && <><Code text={error.code} /> <Raw text={error.detail} limit={300} /></>}
      {approval && (
        <>
          <a href={address.approval(approval.id)}>{t.approvalState[approval.state]}</a>
          {approval.by && <> · <Raw text={approval.by} limit={128} /></>}
          {approval.outcome && <> · {t.approvals.outcome[approval.outcome]}</>}
        </>
      )}
    </>
  );
}
