// The arguments of a call beside what the tool's schema says about them. Long values are closed until they are opened,
// and a call is not allowed before all of them was shown: what was not looked at must not be approved by mistake.

import type { Approval } from "../../api/types.ts";
import { isObject, type Json, type Field, schemaFields, valueText } from "../../base/json.ts";
import { isLong, shorten, shownOf } from "../../base/text.ts";
import { changeDraft, draftOf } from "../../data/approvals.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";

interface Argument {
  name: string;
  text: string;
  field: Field | null;
}

function argumentsOf(approval: Approval, schema: unknown): { given: Argument[]; missing: Field[] } {
  const values: { [name: string]: Json } = isObject(approval.arguments) ? approval.arguments : {};
  const fields = schemaFields(schema);
  const given = Object.entries(values).map(([name, value]) => ({
    name,
    text: valueText(value),
    field: fields.find((field) => field.name === name) ?? null,
  }));
  return { given, missing: fields.filter((field) => field.required && !(field.name in values)) };
}

/** The names of long values of which not all was shown yet. */
export function unopened(approval: Approval): string[] {
  const { opened, unread } = draftOf(approval.id);
  const isShown = (name: string, text: string) => Object.hasOwn(opened, name) && (unread.includes(name) || shownOf(text, opened[name] ?? 0).head === text.length);
  return argumentsOf(approval, null)
    .given.filter(({ name, text }) => isLong(text) && !isShown(name, text))
    .map(({ name }) => name);
}

export function Arguments({ approval, schema }: { approval: Approval; schema: unknown }) {
  const t = texts.value.approvals;
  const { given, missing } = argumentsOf(approval, schema);
  const hasSchema = schemaFields(schema).length > 0;
  if (given.length + missing.length === 0) return <p class="quiet">{t.noArguments}</p>;
  return (
    <dl class="arguments">
      {given.map((argument) => (
        <div key={argument.name} class="argument">
          <dt>
            <Code text={argument.name} limit={128} />
            {argument.field?.type && <span class="quiet" data-raw>{shorten(argument.field.type, 80)}</span>}
            {hasSchema && !argument.field && <span class="tag grave">{t.notInSchema}</span>}
          </dt>
          <dd>
            <Value approval={approval} argument={argument} />
            {argument.field?.description && (
              <p class="quiet">
                <Raw text={argument.field.description} limit={300} />
              </p>
            )}
          </dd>
        </div>
      ))}
      {missing.map((field) => (
        <div key={field.name} class="argument">
          <dt>
            <Code text={field.name} limit={128} />
          </dt>
          <dd>
            <span class="tag grave">{t.missing}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Value({ approval, argument: { name, text } }: { approval: Approval; argument: Argument }) {
  const t = texts.value.approvals;
  const { opened, unread } = draftOf(approval.id);
  if (!isLong(text)) return <RawBlock text={text} label={name} />;
  const open = (more: number) => changeDraft(approval.id, { opened: { ...opened, [name]: more } });
  if (!Object.hasOwn(opened, name)) {
    return (
      <div class="closed-value">
        <Raw text={text} limit={160} />
        <button type="button" onClick={() => open(0)}>
          {t.openValue(text.length)}
        </button>
      </div>
    );
  }
  const more = opened[name] ?? 0;
  const { head, tail } = shownOf(text, more);
  if (head === text.length) return <RawBlock text={text} label={name} first={text.length} />;
  return (
    <>
      <RawBlock text={text.slice(0, head)} label={name} first={head} />
      <p class="callout warn">
        <span class="grow">{t.notShown(tail - head, text.length)}</span>
        <button type="button" onClick={() => open(more + 1)}>
          {t.showMore}
        </button>
      </p>
      <RawBlock text={text.slice(tail)} label={t.endOf(name)} first={text.length} />
      <label class="check">
        <input type="checkbox" checked={unread.includes(name)} onChange={({ currentTarget: { checked } }) => changeDraft(approval.id, { unread: checked ? [...unread, name] : unread.filter((one) => one !== name) })} />{" "}
        {t.withoutReading}
      </label>
    </>
  );
}
