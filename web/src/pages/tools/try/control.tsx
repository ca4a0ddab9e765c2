// The control of one value: a text with a picker for its format, a number, a choice of values, or JSON.

import { useEffect, useRef, useState } from "preact/hooks";
import { type FormField, pointerOf } from "../../../base/form.ts";
import { isWhole, parseExact, typedNumber } from "../../../base/exact-json.ts";
import { isNumber, type Json, pretty, valueText } from "../../../base/json.ts";
import { plain, shorten } from "../../../base/text.ts";
import { texts } from "../../../i18n/index.ts";
import { Icon } from "../../../ui/icon.tsx";
import { Raw } from "../../../ui/raw.tsx";
import type { Form, Path } from "./field.tsx";

/** What a field and its control know of the place. */
export interface InnerProps {
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

/** Where one value is entered. */
export function Control(props: InnerProps) {
  const { form, field, path, value, id, isWrong, name } = props;
  const shared: Shared = { "aria-label": name, id, "aria-invalid": isWrong, "aria-describedby": field.description ? `${id} about` : undefined };
  switch (field.kind) {
    case "text":
      return <TextField {...props} shared={shared} />;
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
              {plain(shorten(valueText(option), 200))}
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

/** The text is what is sent. A picker only writes into it, so that a text of any form can stay. */
function TextField({ form, field, path, value, isItem, shared }: InnerProps & { shared: Shared }) {
  const t = texts.value.tryIt;
  const picker = useRef<HTMLInputElement>(null);
  const format = field.kind === "text" ? field.format : "";
  const change = (text: string) => form.set(path, text === "" && !isItem ? undefined : text);
  const pickerType = pickers[format];
  const sample = value === null ? "null" : placeholderOf(field) ? undefined : examples[format];
  const common = { ...shared, spellcheck: false, placeholder: sample ?? placeholderOf(field), "data-raw": sample !== undefined || undefined, value: typeof value === "string" ? value : "" };
  if (typeof value === "string" && (value.length > 80 || value.includes("\n"))) return <textarea {...common} rows={4} onInput={(event) => change(event.currentTarget.value)} />;
  const input = <input {...common} type="text" inputMode={keyboards[format]} autocomplete="off" onInput={(event) => change(event.currentTarget.value)} />;
  if (!pickerType) return input;
  return (
    <div class="picked">
      {input}
      <button type="button" class="icon-button" aria-label={`${t.pick} ${path.at(-1)}`} onClick={() => picker.current?.showPicker()}>
        <Icon name="clock" />
      </button>
      <input ref={picker} class="picker" type={pickerType} tabIndex={-1} aria-hidden="true" onInput={({ currentTarget: { value: picked } }) => picked && change(format === "date" ? picked : new Date(picked).toISOString())} />
    </div>
  );
}

const pickers: Record<string, "date" | "datetime-local"> = { date: "date", "date-time": "datetime-local" };
const keyboards: Record<string, "email" | "url"> = { email: "email", uri: "url", url: "url" };
const examples: Record<string, string> = { date: "2026-01-31", "date-time": "2026-01-31T12:00:00Z", time: "12:00:00Z" };

/** What is typed stays as it is, such as `1.` on the way to `1.5`; the value is its number, or the text if it is none. */
function NumberField({ form, field, path, value, shared }: InnerProps & { shared: Shared }) {
  const t = texts.value.tryIt;
  const [typed, setTyped] = useState(value === undefined || value === null ? "" : valueText(value));
  useEffect(() => {
    if (JSON.stringify(typedNumber(typed)) !== JSON.stringify(value ?? undefined)) setTyped(value === undefined || value === null ? "" : valueText(value));
  }, [value]);
  const wrong = typeof value === "string" ? t.notNumber : value !== undefined && isNumber(value) && field.kind === "number" && field.isInteger && !isWhole(value) ? t.notWhole : "";
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
          form.set(path, typedNumber(event.currentTarget.value));
        }}
      />
      {wrong && <p class="error-text">{wrong}</p>}
    </>
  );
}

/** Any value as JSON. The form has the last one that was valid. */
function JsonField({ form, path, value, shared }: InnerProps & { shared: Shared }) {
  const t = texts.value.tryIt;
  const pointer = pointerOf(path);
  const [typed, setTyped] = useState(form.typed.get(pointer) ?? pretty(value));
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
          if ("value" in next) {
            form.typed.delete(pointer);
            form.set(path, next.value);
          } else form.typed.set(pointer, event.currentTarget.value);
        }}
      />
      {"error" in parsed && <p class="error-text">{t.notJson} <Raw text={parsed.error} limit={200} /></p>}
    </>
  );
}

function parse(text: string): { value: Json | undefined } | { error: string } {
  if (text.trim() === "") return { value: undefined };
  try {
    return { value: parseExact(text) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}
