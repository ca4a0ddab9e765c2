// Where a message is written. What was typed stays until the server has taken it, also when another page was looked at meanwhile.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { type ApiError, toApiError } from "../../api/client.ts";
import { newKey } from "../../base/idempotency.ts";
import { agentName, agents, openRun, sendMessage, type ThreadView } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import { Failure } from "../../ui/notice.tsx";
import { Code } from "../../ui/raw.tsx";
import { Empty } from "../../ui/state.tsx";

interface Draft {
  text: string;
  /** The same text that is sent again is the same message: the first answer may have been lost. */
  key: string;
}

const drafts = signal<Readonly<Record<string, Draft>>>({});
const setDraft = (id: string, text: string): void => void (drafts.value = { ...drafts.peek(), [id]: { text, key: newKey() } });

export function MessageBox({ id, view, reread }: { id: string; view: ThreadView; reread: () => Promise<void> }) {
  const t = texts.value.threads;
  const list = agents.data.value?.value ?? [];
  const [chosen, choose] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const draft = drafts.value[id] ?? { text: "", key: "" };
  const run = openRun(view);
  if (agents.data.value && list.length === 0) return <Empty title={t.noAgents} text={t.noAgentsText} command={'printf \'[llm]\\nprovider = "scripted"\\n\' >> toolhub.toml'} />;
  const agent = list.some(({ name }) => name === chosen) ? chosen : agentName(view);
  const mayWrite = !isBusy && !run && draft.text.trim() !== "";
  const send = async () => {
    if (!mayWrite) return;
    setBusy(true);
    setError(null);
    try {
      await sendMessage(id, draft.text, agent, draft.key);
      // What was typed during the request stays.
      if (drafts.peek()[id]?.key === draft.key) setDraft(id, "");
      await reread();
    } catch (failure) {
      setError(toApiError(failure));
      void reread();
    } finally {
      setBusy(false);
    }
  };
  const onKey = (event: KeyboardEvent) => {
    // Safari ends the composition before the Enter that ended it; only the old code tells that key apart.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    void send();
  };
  return (
    <form class="message-box" onSubmit={(event) => (event.preventDefault(), void send())}>
      <textarea
        aria-label={t.message}
        placeholder={run ? t.wait : t.messageHint}
        rows={Math.min(10, Math.max(2, draft.text.split("\n").length))}
        value={draft.text}
        onInput={(event) => setDraft(id, event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <div class="answers">
        {list.length > 1 ? (
          <label>
            <span class="quiet">{texts.value.runs.agent}</span>{" "}
            <select value={agent} onChange={(event) => choose(event.currentTarget.value)}>
              {list.map(({ name }) => (
                <option key={name} value={name} data-raw>
                  {name}
                </option>
              ))}
            </select>
          </label>
        ) : (
          <span class="quiet">
            {texts.value.runs.agent} <Code text={agent} />
          </span>
        )}
        <button type="submit" class="primary" disabled={!mayWrite} aria-busy={isBusy}>
          {t.send}
        </button>
      </div>
      {error && (
        <p class="error-text" role="alert">
          <Failure error={error} />
        </p>
      )}
    </form>
  );
}
