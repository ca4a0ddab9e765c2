// Changes the arguments of a call as JSON and shows the difference before it is allowed.

import { useLayoutEffect, useRef } from "preact/hooks";
import { parseMembers } from "../../base/exact-json.ts";
import { pretty } from "../../base/json.ts";
import type { Draft } from "../../data/approvals.ts";
import { texts } from "../../i18n/index.ts";
import { Diff } from "../../ui/diff.tsx";
import { Code, Raw } from "../../ui/raw.tsx";

interface Props {
  before: string;
  draft: Draft;
  change: (next: Partial<Draft>) => void;
  isOpen: boolean;
  isBusy: boolean;
  allow: (text: string) => void;
  /** What the server finds wrong with the arguments. */
  errors: readonly { pointer: string; detail: string }[];
}

export function EditForm({ before, draft, change, isOpen, isBusy, allow, errors }: Props) {
  const t = texts.value.approvals;
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const parsed = parseMembers(draft.text);
  return (
    <div class="form">
      <label>
        {t.editArguments}
        <textarea
          ref={field}
          class="code"
          name="arguments"
          spellcheck={false}
          rows={Math.min(24, Math.max(6, draft.text.split("\n").length + 1))}
          value={draft.text}
          aria-invalid={"error" in parsed}
          aria-describedby="edit-errors"
          onInput={(event) => change({ text: event.currentTarget.value })}
        />
      </label>
      <div id="edit-errors" role="alert" class="error-text">
        {"error" in parsed && (
          <p>
            {t.notJson} {parsed.error && <Raw text={parsed.error} limit={200} />}
          </p>
        )}
        {errors.map((error) => (
          <p key={error.pointer + error.detail}>
            <Code text={error.pointer || "/"} /> <Raw text={error.detail} />
          </p>
        ))}
      </div>
      {"value" in parsed && <Diff before={before} after={pretty(parsed.value)} />}
      <p class="quiet">{t.redactedStays}</p>
      <div class="answers">
        <button type="button" class="primary" disabled={!isOpen || isBusy || "error" in parsed} onClick={() => allow(draft.text)}>
          {t.allowEdited}
        </button>
        <button type="button" onClick={() => change({ mode: "none" })}>
          {texts.value.common.back}
        </button>
      </div>
    </div>
  );
}
