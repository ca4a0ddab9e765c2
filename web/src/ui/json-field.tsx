// A field for an object as JSON that shows an error at its place.

import { useLayoutEffect, useRef } from "preact/hooks";
import { type Parsed, placeOf } from "../base/exact-json.ts";
import { texts } from "../i18n/index.ts";
import { Raw } from "./raw.tsx";

interface Props {
  label: string;
  name: string;
  text: string;
  parsed: Parsed;
  change: (text: string) => void;
}

export function JsonField({ label, name, text, parsed, change }: Props) {
  const t = texts.value.contexts;
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const show = (at: number) => {
    field.current?.focus();
    field.current?.setSelectionRange(at, at + 1);
  };
  return (
    <>
      <label>
        {label}
        <textarea
          ref={field}
          class="code"
          name={name}
          spellcheck={false}
          rows={Math.min(24, Math.max(6, text.split("\n", 24).length + 1))}
          value={text}
          aria-invalid={"error" in parsed}
          aria-describedby="json-error"
          onInput={(event) => change(event.currentTarget.value)}
        />
      </label>
      <p id="json-error" role="alert" class="error-text">
        {"error" in parsed &&
          (parsed.at === null ? (
            texts.value.approvals.notJson
          ) : (
            <>
              <button type="button" class="link" onClick={() => show(parsed.at ?? 0)}>
                {t.place(...placeOf(text, parsed.at))}
              </button>{" "}
              <Raw text={parsed.error} limit={200} />
            </>
          ))}
      </p>
    </>
  );
}
