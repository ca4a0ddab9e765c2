// Calls of a run that wait for a person: an approval, answered in place, or a result from outside.

import { signal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { type ApiError, toApiError } from "../../api/client.ts";
import type { Approval, Run, RunCall } from "../../api/types.ts";
import { parseExact } from "../../base/exact-json.ts";
import { pretty } from "../../base/json.ts";
import { approvalOf, draftOf } from "../../data/approvals.ts";
import { type Resource, useResource } from "../../data/resource.ts";
import { reportResult } from "../../data/runs.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { Failure } from "../../ui/notice.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { Countdown } from "../../ui/time.tsx";
import { Answer, useAsking } from "../approvals/answer.tsx";

/** Results as they were typed. They stay when the call ends meanwhile. */
const typed = signal<Readonly<Record<string, string>>>({});
const setTyped = (id: string, text: string): void => void (typed.value = { ...typed.peek(), [id]: text });

/** The approvals that calls waited for: a run does not name them any more when they are answered. */
const askedFor = new Map<string, string>();

/** A call that waits for a result from outside: only these have their arguments in the run. */
const isExternal = (call: RunCall): boolean => call.arguments !== undefined && call.arguments !== null && call.status === "executing";
const isWaiting = (call: RunCall): boolean => call.status === "awaiting_approval" && !!call.approvalId;

/** Whether a person is asked something about the call. */
export const asks = (call: RunCall): boolean => isExternal(call) || isWaiting(call);

/** What the run waits for a person to do, and what a person was doing when it was no longer needed. */
export function OpenCalls({ run, done }: { run: Run; done: () => Promise<void> }) {
  return (
    <>
      {run.calls.map((call) => {
        if (isExternal(call) || typed.value[call.id]) return <ExternalCall key={call.id} call={call} done={() => void done()} />;
        if (call.approvalId) askedFor.set(call.id, call.approvalId);
        const approval = askedFor.get(call.id);
        return approval && (isWaiting(call) || draftOf(approval).mode !== "none") ? <InlineApproval key={call.id} id={approval} /> : null;
      })}
    </>
  );
}

export function InlineApproval({ id }: { id: string }) {
  const resource = useMemo(() => approvalOf(id), [id]);
  useResource(resource);
  return <Loaded of={resource}>{(snapshot) => <Question approval={snapshot.value} resource={resource} />}</Loaded>;
}

function Question({ approval, resource }: { approval: Approval; resource: Resource<Approval> }) {
  const t = texts.value.approvals;
  const asking = useAsking(approval);
  const isOpen = approval.state === "pending";
  if (!isOpen && draftOf(approval.id).mode === "none") return <p class="quiet">{t.became[approval.state]}</p>;
  return (
    <section class="open-call" aria-label={texts.value.callStatus.awaiting_approval}>
      <p>
        <a href={address.approval(approval.id)}>
          {texts.value.runs.asksFor} <Code text={approval.tool} limit={64} />
        </a>{" "}
        · <Raw text={approval.rule} limit={300} /> · {isOpen ? <><span class="quiet">{t.deniesItself}</span> <Countdown until={approval.expiresAt} /></> : <strong>{t.became[approval.state]}</strong>}
      </p>
      <Answer approval={approval} resource={resource} asking={asking} />
    </section>
  );
}

/** A text that is JSON is that value; any other is itself. */
function valueOf(text: string): { value: unknown; isJson: boolean } {
  try {
    return { value: parseExact(text), isJson: true };
  } catch {
    return { value: text, isJson: false };
  }
}

function ExternalCall({ call, done }: { call: RunCall; done: () => void }) {
  const t = texts.value.runs;
  const text = typed.value[call.id] ?? "";
  const isOpen = isExternal(call);
  const [isError, setError] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<ApiError | null>(null);
  const report = (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    reportResult(call.id, isError ? { error: text } : { output: valueOf(text).value })
      .then(() => (setTyped(call.id, ""), done()))
      .catch((problem: unknown) => setFailure(toApiError(problem)))
      .finally(() => setBusy(false));
  };
  return (
    <section class="open-call" aria-label={t.external}>
      <p>
        {isOpen ? t.externalFor : <strong>{t.ended}</strong>}{" "}
        <a href={address.call(call.id)}>
          <Code text={call.tool} limit={64} />
        </a>
      </p>
      {isOpen && <RawBlock text={pretty(call.arguments)} label={texts.value.calls.arguments} />}
      {may("tools:call") && (
        <form class="form" onSubmit={report}>
          <label>
            {isError ? t.resultError : t.result}
            <textarea class="code" rows={3} required spellcheck={false} value={text} onInput={(event) => setTyped(call.id, event.currentTarget.value)} />
          </label>
          <label class="check">
            <input type="checkbox" checked={isError} onChange={(event) => setError(event.currentTarget.checked)} /> {t.callFailed}
          </label>
          <div class="answers">
            <button type="submit" class="primary" disabled={!isOpen || isBusy || text.trim() === ""}>
              {t.report}
            </button>
            {text !== "" && !isError && <span class="quiet">{valueOf(text).isJson ? t.asJson : t.asText}</span>}
          </div>
          {failure && (
            <p class="error-text" role="alert">
              <Failure error={failure} />
            </p>
          )}
        </form>
      )}
    </section>
  );
}
