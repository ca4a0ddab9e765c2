// One place of the arguments as a field: what its schema asks for decides which.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { canShow, fieldOf, type FormField, initialValue, optionOf, pointerOf } from "../../../base/form.ts";
import { isObject, type Json, pretty } from "../../../base/json.ts";
import { texts } from "../../../i18n/index.ts";
import { Code, Raw } from "../../../ui/raw.tsx";

export type Path = readonly (string | number)[];

/** What all fields of a form share. */
export interface Form {
  root: unknown;
  set: (path: Path, value: Json | undefined) => void;
  /** What the server said about the value at a JSON pointer. */
  errorsAt: (pointer: string) => readonly string[];
  /** A field whose text is no value yet keeps the call from being made. */
  markInvalid: (pointer: string, isInvalid: boolean) => void;
}

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
  const described = fieldOf(schema, form.root);
  const field: FormField = path.length > maxDepth || !canShow(described, value) ? { ...described, kind: "json" } : described;
  const pointer = pointerOf(path);
  const errors = form.errorsAt(pointer);
  const id = `field${pointer}`;
  const last = path.at(-1);
  const label = typeof last === "number" ? t.item(last + 1) : <Code text={String(last)} limit={120} />;
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
        <label for={id}>
          {label}
          <Type field={field} isRequired={isRequired && !isItem} />
        </label>
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

interface InnerProps {
  form: Form;
  schema: unknown;
  field: FormField;
  path: Path;
  value: Json | undefined;
  isRequired: boolean;
  isItem: boolean;
  id: string;
  isWrong: boolean;
  /** For a field whose label names another one. */
  name?: string;
}

function Control(props: InnerProps) {
  const { form, field, path, value, isItem, id, isWrong, name } = props;
  const shared: Shared = { "aria-label": name, id, "aria-invalid": isWrong, "aria-describedby": field.description ? `${id} about` : undefined };
  switch (field.kind) {
    case "text": {
      const isLong = typeof value === "string" && (value.length > 80 || value.includes("\n"));
      const change = (text: string) => form.set(path, text === "" && !isItem ? undefined : text);
      const common = { ...shared, spellcheck: false, placeholder: placeholderOf(field), value: typeof value === "string" ? value : "" };
      return isLong ? (
        <textarea {...common} rows={4} onInput={(event) => change(event.currentTarget.value)} />
      ) : (
        <input {...common} type="text" autocomplete="off" onInput={(event) => change(event.currentTarget.value)} />
      );
    }
    case "number":
      return <NumberField {...props} shared={shared} />;
    case "boolean":
    case "enum": {
      const options: Json[] = field.kind === "enum" ? field.options : [true, false];
      const all = field.isNullable ? [...options, null] : options;
      const chosen = value === undefined ? -1 : all.findIndex((option) => JSON.stringify(option) === JSON.stringify(value));
      return (
        <select {...shared} value={String(chosen)} onChange={(event) => form.set(path, all[Number(event.currentTarget.value)] ?? (Number(event.currentTarget.value) < 0 ? undefined : null))}>
          <option value="-1">{texts.value.tryIt.unset}</option>
          {all.map((option, index) => (
            <option key={index} value={String(index)} data-raw>
              {typeof option === "string" ? option : JSON.stringify(option)}
            </option>
          ))}
        </select>
      );
    }
    default:
      return <JsonField {...props} shared={shared} />;
  }
}

const placeholderOf = (field: FormField): string => (field.default === undefined || field.default === null ? "" : `${texts.value.tryIt.default} ${JSON.stringify(field.default)}`);

type Shared = { "aria-label": string | undefined; id: string; "aria-invalid": boolean; "aria-describedby": string | undefined };

function useInvalid(form: Form, path: Path, isInvalid: boolean): void {
  const pointer = pointerOf(path);
  useEffect(() => {
    form.markInvalid(pointer, isInvalid);
    return () => form.markInvalid(pointer, false);
  }, [pointer, isInvalid]);
}

/** What is typed stays as it is, such as `1.` on the way to `1.5`; the value is its number, or the text if it is none. */
function NumberField({ form, field, path, value, shared }: InnerProps & { shared: Shared }) {
  const t = texts.value.tryIt;
  const [typed, setTyped] = useState(value === undefined || value === null ? "" : String(value));
  const asNumber = (text: string): Json | undefined => (text.trim() === "" ? undefined : Number.isFinite(Number(text)) ? Number(text) : text);
  useEffect(() => {
    if (JSON.stringify(asNumber(typed)) !== JSON.stringify(value ?? undefined)) setTyped(value === undefined || value === null ? "" : String(value));
  }, [value]);
  const wrong = typeof value === "string" ? t.notNumber : typeof value === "number" && field.kind === "number" && field.isInteger && !Number.isInteger(value) ? t.notWhole : "";
  useInvalid(form, path, wrong !== "");
  return (
    <>
      <input
        {...shared}
        type="text"
        inputMode="decimal"
        autocomplete="off"
        aria-invalid={shared["aria-invalid"] || wrong !== ""}
        placeholder={placeholderOf(field)}
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          form.set(path, asNumber(event.currentTarget.value));
        }}
      />
      {wrong && <p class="error-text">{wrong}</p>}
    </>
  );
}

/** Any value as JSON. The form has the last one that was valid. */
function JsonField({ form, path, value, shared }: InnerProps & { shared: Shared }) {
  const t = texts.value.tryIt;
  const [typed, setTyped] = useState(pretty(value));
  const parsed = parse(typed);
  useEffect(() => {
    if ("value" in parsed && JSON.stringify(parsed.value) !== JSON.stringify(value)) setTyped(pretty(value));
  }, [value]);
  useInvalid(form, path, "error" in parsed);
  return (
    <>
      <textarea
        {...shared}
        class="code"
        rows={Math.min(10, Math.max(2, typed.split("\n").length))}
        spellcheck={false}
        placeholder={t.placeholderJson}
        aria-invalid={shared["aria-invalid"] || "error" in parsed}
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          const next = parse(event.currentTarget.value);
          if ("value" in next) form.set(path, next.value);
        }}
      />
      {"error" in parsed && <p class="error-text">{t.notJson} <Raw text={parsed.error} limit={200} /></p>}
    </>
  );
}

function parse(text: string): { value: Json | undefined } | { error: string } {
  if (text.trim() === "") return { value: undefined };
  try {
    return { value: JSON.parse(text) as Json };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
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

function emptyOf(schema: unknown, root: unknown): Json {
  const { kind } = fieldOf(schema, root);
  return kind === "list" ? [] : kind === "object" ? {} : kind === "text" || kind === "number" ? "" : null;
}

export function Members({ form, field, path, value }: { form: Form; field: FormField; path: Path; value: Json | undefined }): ComponentChildren {
  if (field.kind !== "object") return null;
  return field.members.slice(0, 300).map(({ name, schema, isRequired }) => (
    <Field key={name} form={form} schema={schema} path={[...path, name]} value={isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined} isRequired={isRequired} />
  ));
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
              {title || `${t.option(index + 1)} (${kind})`}
            </option>
          );
        })}
      </select>
      {isGroup(shown) ? <Group {...inner} /> : <Control {...inner} />}
    </>
  );
}
