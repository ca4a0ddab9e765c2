// Calls of a run that wait for a person: an approval, answered in place, or a result from outside.

import { useMemo, useState } from "preact/hooks";
import { ApiError } from "../../api/client.ts";
import type { Approval, RunCall } from "../../api/types.ts";
import { pretty } from "../../base/json.ts";
import { approvalOf } from "../../data/approvals.ts";
import { type Resource, useResource } from "../../data/resource.ts";
import { reportResult } from "../../data/runs.ts";
import { may } from "../../data/session.ts";
import { toolOf } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Failure } from "../../ui/notice.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { Countdown } from "../../ui/time.tsx";
import { Arguments } from "../approvals/arguments.tsx";
import { Decision } from "../approvals/decision.tsx";

/** A call of a run that waits for a result from outside: only these have their arguments in the run. */
export const isExternal = (call: RunCall): boolean => call.arguments !== undefined && call.arguments !== null && call.status === "executing";

/** Whether a person is asked something about the call. */
export const asks = (call: RunCall): boolean => isExternal(call) || (call.status === "awaiting_approval" && !!call.approvalId);

export function InlineApproval({ id }: { id: string }) {
  const resource = useMemo(() => approvalOf(id), [id]);
  useResource(resource);
  return <Loaded of={resource}>{(snapshot) => <Question approval={snapshot.value} resource={resource} />}</Loaded>;
}

function Question({ approval, resource }: { approval: Approval; resource: Resource<Approval> }) {
  const t = texts.value.approvals;
  const toolResource = useMemo(() => toolOf(approval.tool), [approval.tool]);
  const tool = useResource(toolResource).value?.value ?? null;
  if (approval.state !== "pending") return <p class="quiet">{t.became[approval.state]}</p>;
  return (
    <section class="open-call" aria-label={texts.value.callStatus.awaiting_approval}>
      <p>
        <a href={address.approval(approval.id)}>
          {texts.value.runs.asksFor} <Code text={approval.tool} limit={64} />
        </a>{" "}
        · <Raw text={approval.rule} limit={300} /> · <span class="quiet">{t.deniesItself}</span> <Countdown until={approval.expiresAt} />
      </p>
      <Arguments approval={approval} schema={tool?.parameters} />
      {may("approvals:write") && <Decision approval={approval} tool={tool} onAnswer={(answered) => (resource.set(() => answered), void resource.read())} />}
    </section>
  );
}

/** A text that is JSON is that value; any other is itself. */
function valueOf(text: string): { value: unknown; isJson: boolean } {
  try {
    return { value: JSON.parse(text) as unknown, isJson: true };
  } catch {
    return { value: text, isJson: false };
  }
}

export function ExternalCall({ call, done }: { call: RunCall; done: () => void }) {
  const t = texts.value.runs;
  const [text, setText] = useState("");
  const [isError, setError] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<ApiError | null>(null);
  const report = (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    reportResult(call.id, isError ? { error: text } : { output: valueOf(text).value })
      .then(done)
      .catch((problem: unknown) => setFailure(problem instanceof ApiError ? problem : new ApiError(0, String(problem))))
      .finally(() => setBusy(false));
  };
  return (
    <section class="open-call" aria-label={t.external}>
      <p>
        {t.externalFor}{" "}
        <a href={address.call(call.id)}>
          <Code text={call.tool} limit={64} />
        </a>
      </p>
      <RawBlock text={pretty(call.arguments)} label={texts.value.calls.arguments} />
      {may("tools:call") && (
        <form class="form" onSubmit={report}>
          <label>
            {isError ? t.resultError : t.result}
            <textarea class="code" rows={3} required spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </label>
          <label class="check">
            <input type="checkbox" checked={isError} onChange={(event) => setError(event.currentTarget.checked)} /> {t.callFailed}
          </label>
          <div class="answers">
            <button type="submit" class="primary" disabled={isBusy || text.trim() === ""}>
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
