// A field for an object as JSON that shows an error at its place.

import { useLayoutEffect, useRef } from "preact/hooks";
import { type Parsed, placeOf } from "../../base/exact-json.ts";
import { shorten } from "../../base/text.ts";
import { texts } from "../../i18n/index.ts";
import { Raw } from "../../ui/raw.tsx";

export function JsonField({ text, parsed, change }: { text: string; parsed: Parsed; change: (text: string) => void }) {
  const t = texts.value.contexts;
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const at = "error" in parsed ? parsed.at : null;
  const place = at === null ? null : placeOf(text, at);
  const show = () => {
    field.current?.focus();
    field.current?.setSelectionRange(at, (at ?? 0) + 1);
  };
  return (
    <>
      <label>
        {t.json}
        <textarea
          ref={field}
          class="code"
          name="data"
          spellcheck={false}
          rows={Math.min(24, Math.max(6, text.split("\n", 24).length + 1))}
          value={text}
          aria-invalid={"error" in parsed}
          aria-describedby="json-error"
          onInput={(event) => change(event.currentTarget.value)}
        />
      </label>
      <div id="json-error" role="alert" class="error-text">
        {"error" in parsed && (
          <p>
            {place ? t.line(place.line, place.column) : t.notObject} <Raw text={parsed.error} limit={200} />
          </p>
        )}
        {place && (
          <p>
            <WrongLine text={place.text} column={place.column} />{" "}
            <button type="button" class="link" onClick={show}>
              {t.goTo}
            </button>
          </p>
        )}
      </div>
    </>
  );
}

/** The line around the place, which is marked. */
function WrongLine({ text, column }: { text: string; column: number }) {
  const at = column - 1;
  const [before, after] = [text.slice(Math.max(0, at - 40), at).trimStart(), text.slice(at + 1)];
  return (
    <code class="wrong-line" data-raw>
      <Raw text={before} />
      <mark>{/\S/.test(text[at] ?? "") ? <Raw text={text[at] ?? ""} /> : "␣"}</mark>
      <Raw text={shorten(after, 40)} />
    </code>
  );
}
