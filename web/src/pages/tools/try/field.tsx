// One place of the arguments as a field: what its schema asks for decides which.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { canShow, emptyOf, fieldOf, type FormField, initialValue, optionOf, pointerOf } from "../../../base/form.ts";
import { isObject, type Json } from "../../../base/json.ts";
import { plain, shorten } from "../../../base/text.ts";
import { texts } from "../../../i18n/index.ts";
import { Code, Raw } from "../../../ui/raw.tsx";
import { Control, type InnerProps } from "./control.tsx";

export type Path = readonly (string | number)[];

/** What all fields of a form share. */
export interface Form {
  root: unknown;
  set: (path: Path, value: Json | undefined) => void;
  /** What the server said about the value at a JSON pointer, on demand also about what is in it. */
  errorsAt: (pointer: string, isDeep?: boolean) => readonly string[];
  /** A field whose text is no value yet keeps the call from being made. */
  markInvalid: (pointer: string, isInvalid: boolean) => void;
  /** Texts of fields for JSON that are not JSON yet, by JSON pointer. */
  typed: Map<string, string>;
  /** Whether the server puts a value back, whatever the type of its place. */
  isKept?: (value: Json) => boolean;
}

/** The places whose text is no value, after a change of one of them. */
export const changedInvalid = (all: readonly string[], pointer: string, isInvalid: boolean): readonly string[] =>
  all.includes(pointer) === isInvalid ? all : isInvalid ? [...all, pointer] : all.filter((one) => one !== pointer);

interface Props {
  form: Form;
  schema: unknown;
  path: Path;
  value: Json | undefined;
  isRequired: boolean;
  /** An item of a list has a value even when it is empty. */
  isItem?: boolean;
}

const isGroup = ({ kind }: FormField): boolean => kind === "object" || kind === "list" || kind === "choice";

/** Fields in fields; beyond that a place is edited as JSON. */
const maxDepth = 12;

export function Field({ form, schema, path, value, isRequired, isItem = false }: Props) {
  const t = texts.value.tryIt;
  const [isJson, setJson] = useState(false);
  const described = fieldOf(schema, form.root);
  const isKept = value !== undefined && (form.isKept?.(value) ?? false);
  const isShown = path.length <= maxDepth && canShow(described, value);
  const field: FormField = isKept ? { ...described, kind: "text", format: "" } : isJson || !isShown ? { ...described, kind: "json" } : described;
  const pointer = pointerOf(path);
  const errors = form.errorsAt(pointer, field.kind === "json");
  const id = `field${pointer}`;
  const last = path.at(-1);
  const label = typeof last === "number" ? t.item(last + 1) : <Code text={String(last)} limit={120} />;
  const isNullOffered = described.isNullable && (field.kind === "text" || field.kind === "number" || isGroup(field));
  const tools = (
    <span class="field-tools">
      {isNullOffered && (
        <button type="button" class="link" aria-pressed={value === null} aria-label={`null: ${last}`} data-raw onClick={() => form.set(path, value !== null ? null : isItem ? emptyOf(schema, form.root) : undefined)}>
          null
        </button>
      )}
      {isShown && !isKept && described.kind !== "json" && path.length > 0 && (
        <button type="button" class="link to-json" aria-pressed={isJson} aria-label={`${t.json}: ${last}`} onClick={() => setJson(!isJson)}>
          {t.json}
        </button>
      )}
    </span>
  );
  const about = (
    <>
      {(field.description || field.limits.length > 0) && (
        <p class="field-about quiet" id={`${id} about`}>
          {field.description && <Raw text={field.description} limit={600} />}
          {field.limits.map((limit) => (
            <span key={limit} class="tag plain">
              <Raw text={limit} limit={80} />
            </span>
          ))}
        </p>
      )}
      {errors.map((error, index) => (
        <p key={index} class="error-text">
          <Raw text={error} limit={600} />
        </p>
      ))}
    </>
  );
  const inner: InnerProps = { form, schema, field, path, value, isRequired, isItem, id, isWrong: errors.length > 0 };
  if (!isGroup(field)) {
    return (
      <div class="field">
        <div class="field-head">
          <label for={id}>
            {label}
            <Type field={field} isRequired={isRequired && !isItem} />
          </label>
          {tools}
        </div>
        <Control {...inner} />
        {about}
      </div>
    );
  }
  return (
    <fieldset class="field group">
      <legend>
        {label}
        <Type field={field} isRequired={isRequired && !isItem} />
        {tools}
      </legend>
      {about}
      <Group {...inner} />
    </fieldset>
  );
}

function Type({ field, isRequired }: { field: FormField; isRequired: boolean }) {
  const t = texts.value.tryIt;
  const type = field.kind === "number" ? (field.isInteger ? "integer" : "number") : field.kind === "text" ? field.format || "string" : field.kind === "list" ? "array" : field.kind === "choice" || field.kind === "enum" ? "" : field.kind;
  return (
    <span class="quiet field-type">
      <span data-raw>{[type, field.isNullable && "null"].filter(Boolean).join(" | ")}</span>
      {isRequired && <span class="tag">{t.required}</span>}
    </span>
  );
}

/** Members, items or options. One that is not there can be added, so that a schema that contains itself ends. */
function Group(props: InnerProps) {
  const { form, schema, field, path, value, isRequired } = props;
  const t = texts.value.tryIt;
  const isAbsent = value === undefined || value === null;
  const remove = !isRequired && !isAbsent && (
    <button type="button" class="link" onClick={() => form.set(path, undefined)}>
      {t.remove}
    </button>
  );
  if (field.kind === "choice") return <><Choice {...props} options={field.options} />{remove}</>;
  if (isAbsent) {
    return (
      <button type="button" onClick={() => form.set(path, field.kind === "list" ? [] : (initialValue(schema, form.root) ?? {}))}>
        {t.add}
      </button>
    );
  }
  if (field.kind === "list" && Array.isArray(value)) {
    return (
      <>
        {value.map((item, index) => (
          <div key={index} class="item">
            <Field form={form} schema={field.items} path={[...path, index]} value={item} isRequired isItem />
            <button type="button" class="link" onClick={() => form.set([...path, index], undefined)}>
              {t.remove}
            </button>
          </div>
        ))}
        <div class="group-actions">
          <button type="button" onClick={() => form.set([...path, value.length], initialValue(field.items, form.root) ?? emptyOf(field.items, form.root))}>
            {t.addItem}
          </button>
          {remove}
        </div>
      </>
    );
  }
  if (field.kind !== "object" || !isObject(value)) return null;
  return (
    <>
      <Members form={form} field={field} path={path} value={value} />
      {remove}
    </>
  );
}

/** More are shown on demand. */
const firstMembers = 300;

export function Members({ form, field, path, value }: { form: Form; field: FormField; path: Path; value: Json | undefined }): ComponentChildren {
  const [shown, show] = useState(firstMembers);
  if (field.kind !== "object") return null;
  return (
    <>
      {field.members.slice(0, shown).map(({ name, schema, isRequired }) => (
        <Field key={name} form={form} schema={schema} path={[...path, name]} value={isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined} isRequired={isRequired} />
      ))}
      {field.members.length > shown && (
        <button type="button" class="link" onClick={() => show(shown + firstMembers)}>
          {texts.value.tryIt.moreEntries(field.members.length - shown)}
        </button>
      )}
    </>
  );
}

function Choice({ form, path, value, options, isRequired, isItem, id }: InnerProps & { options: readonly unknown[] }) {
  const t = texts.value.tryIt;
  const [chosen, choose] = useState(optionOf(options, form.root, value));
  const option = options[chosen];
  const described = fieldOf(option, form.root);
  const shown: FormField = canShow(described, value) ? described : { ...described, kind: "json" };
  const inner: InnerProps = { form, schema: option, field: shown, path, value, isRequired, isItem, id: `${id} value`, isWrong: false, name: pointerOf(path) };
  const name = String(path.at(-1) ?? "");
  return (
    <>
      <select
        id={id}
        aria-label={`${t.choose} ${name}`}
        value={String(chosen)}
        onChange={(event) => {
          choose(Number(event.currentTarget.value));
          form.set(path, initialValue(options[Number(event.currentTarget.value)], form.root) ?? (isItem ? emptyOf(options[Number(event.currentTarget.value)], form.root) : undefined));
        }}
      >
        {options.map((one, index) => {
          const { title, kind } = fieldOf(one, form.root);
          return (
            <option key={index} value={String(index)} {...(title && { "data-raw": true })}>
              {plain(shorten(title, 200)) || `${t.option(index + 1)} (${kind})`}
            </option>
          );
        })}
      </select>
      {isGroup(shown) ? <Group {...inner} /> : <Control {...inner} />}
    </>
  );
}
