// The six answers to an approval. What was typed stays when another person answers first.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { type ApiError, toApiError } from "../../api/client.ts";
import type { AnswerBody, Approval, Tool } from "../../api/types.ts";
import { pretty } from "../../base/json.ts";
import { answerApproval, changeDraft, type Draft, draftOf } from "../../data/approvals.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { type KeyMap, useKeys } from "../../ui/keyboard.ts";
import { Failure } from "../../ui/notice.tsx";
import { Code } from "../../ui/raw.tsx";
import { unopened } from "./arguments.tsx";
import { EditForm } from "./edit.tsx";

/** The keys of each decision on the page that waits. Only the first one in the document gets them: which was read first does not matter. */
const waiting = new Map<Element, KeyMap>();
const ofFirst = (key: string) => (event: KeyboardEvent) => {
  const [first] = [...waiting.keys()].sort((one, other) => (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
  if (first) waiting.get(first)?.[key]?.(event);
};
const keysOfFirst: KeyMap = { a: ofFirst("a"), d: ofFirst("d"), e: ofFirst("e") };

interface Props {
  approval: Approval;
  tool: Tool | null;
  onAnswer: (approval: Approval) => void;
}

export function Decision({ approval, tool, onAnswer }: Props) {
  const t = texts.value.approvals;
  const draft = draftOf(approval.id);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const allow = useRef<HTMLButtonElement>(null);
  const isOpen = approval.state === "pending";
  const closed = unopened(approval);
  const change = (next: Partial<Draft>) => changeDraft(approval.id, next);
  const answer = async (body: AnswerBody) => {
    if (isBusy) return;
    setBusy(true);
    setError(null);
    try {
      onAnswer(await answerApproval(approval.id, body));
      change({ mode: "none" });
    } catch (thrown) {
      const failure = toApiError(thrown);
      setError(failure);
      // Answered by another meanwhile: the approval is read again and says by whom.
      if (failure.code === "already_resolved") onAnswer(approval);
    } finally {
      setBusy(false);
    }
  };
  const root = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = root.current;
    if (!isOpen || !element) return;
    waiting.set(element, {
      // One key only moves the focus: a slip must not allow a call.
      a: () => allow.current?.focus(),
      d: () => change({ mode: "deny" }),
      e: () => change({ mode: "edit", text: draft.text || pretty(approval.arguments) }),
    });
    return () => void waiting.delete(element);
  });
  useKeys(isOpen ? keysOfFirst : {});
  if (!isOpen && draft.mode === "none") return null;
  const mayAllow = isOpen && !isBusy && closed.length === 0;
  return (
    <div ref={root} class="decision">
      {draft.mode === "none" && (
        <>
          {closed.length > 0 && (
            <p class="callout warn" id="open-first">
              <Icon name="warning" />
              <span>
                {t.openFirst}{" "}
                {closed.slice(0, 8).map((name) => (
                  <Code key={name} text={name} limit={64} />
                ))}
              </span>
            </p>
          )}
          <div class="answers">
            <button ref={allow} type="button" class="primary" disabled={!mayAllow} aria-describedby={closed.length > 0 ? "open-first" : undefined} onClick={() => void answer({ outcome: "proceed_once" })}>
              {t.allowOnce}
            </button>
            {approval.threadId && (
              <button type="button" disabled={!mayAllow} onClick={() => void answer({ outcome: "proceed_always" })}>
                {t.allowThread}
              </button>
            )}
            <button type="button" disabled={!mayAllow} onClick={() => void answer({ outcome: "proceed_always_tool" })}>
              {t.allowTool}
            </button>
            {tool?.origin && (
              <button type="button" disabled={!mayAllow} onClick={() => void answer({ outcome: "proceed_always_server" })}>
                {t.allowServer}
              </button>
            )}
            <button type="button" disabled={isBusy} onClick={() => change({ mode: "edit", text: draft.text || pretty(approval.arguments) })}>
              {t.edit}
            </button>
            <button type="button" class="danger" disabled={isBusy} onClick={() => change({ mode: "deny" })}>
              {t.deny}
            </button>
          </div>
        </>
      )}
      {draft.mode === "deny" && <DenyForm draft={draft} change={change} isOpen={isOpen} isBusy={isBusy} deny={(reason) => void answer({ outcome: "cancel", ...(reason && { reason }) })} />}
      {draft.mode === "edit" && (
        <EditForm
          before={pretty(approval.arguments)}
          schema={tool?.parameters}
          draft={draft}
          change={change}
          isOpen={isOpen}
          isBusy={isBusy}
          allow={(args) => void answer({ outcome: "modify_with_editor", arguments: args })}
          errors={error?.problem?.errors ?? []}
        />
      )}
      {error && (
        <p class="error-text" role="alert">
          {error.code === "already_resolved" ? t.alreadyAnswered : <Failure error={error} />}
        </p>
      )}
    </div>
  );
}

interface DenyProps {
  draft: Draft;
  change: (next: Partial<Draft>) => void;
  isOpen: boolean;
  isBusy: boolean;
  deny: (reason: string) => void;
}

function DenyForm({ draft, change, isOpen, isBusy, deny }: DenyProps) {
  const t = texts.value.approvals;
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    deny(draft.reason.trim());
  };
  return (
    <form class="form" onSubmit={submit}>
      <label>
        {t.denyReason}
        <textarea ref={field} name="reason" rows={3} maxLength={2000} value={draft.reason} onInput={(event) => change({ reason: event.currentTarget.value })} />
      </label>
      <div class="answers">
        <button type="submit" class="primary danger" disabled={!isOpen || isBusy}>
          {t.denyNow}
        </button>
        <button type="button" onClick={() => change({ mode: "none" })}>
          {texts.value.common.back}
        </button>
      </div>
    </form>
  );
}
