// Changes the arguments of a call, as a form or as JSON, and shows the difference before it is allowed. The text is the one value of both.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { parseMembers } from "../../base/exact-json.ts";
import { canShow, fieldOf, withAt } from "../../base/form.ts";
import { type Json, pretty } from "../../base/json.ts";
import type { Draft } from "../../data/approvals.ts";
import { texts } from "../../i18n/index.ts";
import { Diff } from "../../ui/diff.tsx";
import { JsonField } from "../../ui/json-field.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { changedInvalid, type Form, Members } from "../tools/try/field.tsx";

interface Props {
  before: string;
  /** What the tool takes; undefined if the tool is gone. */
  schema: unknown;
  draft: Draft;
  change: (next: Partial<Draft>) => void;
  isOpen: boolean;
  isBusy: boolean;
  allow: (args: { [name: string]: Json }) => void;
  /** What the server finds wrong with the arguments. */
  errors: readonly { pointer: string; detail: string }[];
}

const maxFormLength = 100_000;

export function EditForm({ before, schema, draft, change, isOpen, isBusy, allow, errors }: Props) {
  const t = texts.value.approvals;
  const tryIt = texts.value.tryIt;
  const [invalid, setInvalid] = useState<readonly string[]>([]);
  const typed = useMemo(() => new Map<string, string>(), []);
  const parsed = parseMembers(draft.text);
  const value = "value" in parsed ? parsed.value : null;
  const field = fieldOf(schema, schema);
  // A browser takes seconds to lay out a huge text in a field that wraps.
  const hasForm = draft.text.length <= maxFormLength && value !== null && field.kind === "object" && field.members.length > 0 && canShow(field, value);
  const view = hasForm ? draft.view : "json";
  const form: Form = {
    root: schema,
    set: (path, next) => change({ text: pretty(withAt(value ?? {}, path, next) ?? {}) }),
    errorsAt: (pointer, isDeep = false) => errors.filter((one) => one.pointer === pointer || (isDeep && one.pointer.startsWith(`${pointer}/`))).map(({ detail }) => detail),
    markInvalid: (pointer, isInvalid) => setInvalid((all) => changedInvalid(all, pointer, isInvalid)),
    typed,
    isKept: (masked) => masked === "[redacted]",
  };
  const mayAllow = isOpen && !isBusy && value !== null && invalid.length === 0;
  return (
    <div class="form">
      <div class="segmented" role="group" aria-label={tryIt.as}>
        {(["form", "json"] as const).map((name) => (
          <button key={name} type="button" aria-pressed={name === view} disabled={invalid.length > 0 || (name === "form" && !hasForm)} onClick={() => change({ view: name })}>
            {tryIt[name]}
          </button>
        ))}
      </div>
      {view === "form" ? <Fields form={form} schema={schema} value={value ?? {}} /> : <JsonField label={t.editArguments} name="arguments" text={draft.text} parsed={parsed} change={(text) => change({ text })} />}
      <div role="alert" class="error-text">
        {errors.map((error) => (
          <p key={error.pointer + error.detail}>
            <Code text={error.pointer || "/"} /> <Raw text={error.detail} />
          </p>
        ))}
      </div>
      {value !== null && <Diff before={before} after={pretty(value)} />}
      <p class="quiet">{t.redactedStays}</p>
      <div class="answers">
        <button type="button" class="primary" disabled={!mayAllow} onClick={() => value !== null && allow(value)}>
          {t.allowEdited}
        </button>
        <button type="button" onClick={() => change({ mode: "none" })}>
          {texts.value.common.back}
        </button>
      </div>
    </div>
  );
}

function Fields({ form, schema, value }: { form: Form; schema: unknown; value: Json }) {
  const fields = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => fields.current?.querySelector<HTMLElement>("input, textarea, select")?.focus(), []);
  return (
    <div ref={fields}>
      <Members form={form} field={fieldOf(schema, schema)} path={[]} value={value} />
    </div>
  );
}
