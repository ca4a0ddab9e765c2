// What a run did, in order, with its times: model requests, and under each the calls that it led to.

import type { Call, Run, RunCall } from "../api/types.ts";

type Step = Run["timeline"][number];

export interface RunStep {
  key: string;
  model: Step | null;
  call: RunCall | null;
  record: Call | null;
  /** Milliseconds since the start of the run. Waiting, then working; of a model request the waiting has no length. */
  from: number;
  began: number;
  to: number;
}

/** The steps of a run; `now` ends what goes on. Calls without a record have no times of their own: they get those of their step. */
export function stepsOf(run: Run, calls: ReadonlyMap<string, Call>, now: number): { steps: RunStep[]; totalMs: number } {
  const start = Date.parse(run.startedAt);
  const since = (at: string | null | undefined, otherwise: number): number => (at ? Date.parse(at) - start : otherwise);
  const end = Math.max(0, since(run.endedAt, now - start));
  const byId = new Map(run.calls.map((call) => [call.id, call]));
  const steps: RunStep[] = [];
  const addCall = (call: RunCall, from: number, to: number) => {
    const record = calls.get(call.id) ?? null;
    const arrived = since(record?.startedAt, from);
    const ended = record ? since(record.endedAt, end) : to;
    // A call that has not begun waits until now.
    const began = record?.queuedMs != null ? arrived + record.queuedMs : record && call.status !== "executing" && !record.durationMs ? ended : arrived;
    steps.push({ key: call.id, model: null, call, record, from: arrived, began: Math.min(began, ended), to: ended });
    byId.delete(call.id);
  };
  run.timeline.forEach((step, index) => {
    const [from, replied] = [since(step.startedAt, 0), since(step.repliedAt, end)];
    steps.push({ key: `model-${index}`, model: step, call: null, record: null, from, began: from, to: replied });
    for (const id of step.calls) {
      const call = byId.get(id);
      if (call) addCall(call, replied, since(step.callsEndedAt, end));
    }
  });
  for (const call of [...byId.values()]) addCall(call, 0, end);
  return { steps, totalMs: Math.max(end, ...steps.map(({ to }) => to)) };
}

/** The length of a call's timeline. A step that goes on ends now. */
export function timelineLength(call: Call, now: number): number {
  const age = call.endedAt ? Date.parse(call.endedAt) - Date.parse(call.startedAt) : now - Date.parse(call.startedAt);
  const ends = (call.timeline ?? []).map(({ startMs, endMs }) => endMs ?? startMs);
  return call.endedAt && ends.length > 0 ? Math.max(...ends) : Math.max(age, ...ends, 0);
}
