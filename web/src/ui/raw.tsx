// Texts that come from tools, callers and the server. Never read as markup; hidden characters are shown by their code.

import { useState } from "preact/hooks";
import { pieces, shorten } from "../base/text.ts";
import { texts } from "../i18n/index.ts";

/** A text in a line. `limit` cuts it; a huge text must not hang the browser. */
export function Raw({ text, limit = 500 }: { text: string; limit?: number }) {
  return (
    <span class="raw" data-raw dir="auto">
      {marked(shorten(text, limit))}
    </span>
  );
}

function marked(text: string) {
  return pieces(text).map((piece) =>
    "text" in piece ? (
      piece.text
    ) : (
      <span class="mark" title={piece.name}>
        {piece.mark}
      </span>
    ),
  );
}

const firstPart = 2_000;
const morePart = 50_000;

/** A text of several lines. One longer than `first` begins with a part, and more of it is shown on demand. */
export function RawBlock({ text, label, first = firstPart }: { text: string; label?: string | undefined; first?: number }) {
  const [more, showMore] = useState(0);
  const shown = first + more * morePart;
  const t = texts.value.common;
  return (
    <>
      <pre class="block" data-raw dir="auto" tabIndex={0} role="group" aria-label={label}>
        {marked(shorten(text, shown))}
      </pre>
      {text.length > shown && (
        <button type="button" class="link" onClick={() => showMore(more + 1)}>
          {t.showMore(text.length - shown)}
        </button>
      )}
    </>
  );
}

/** A value that is a name or an id. */
export const Code = ({ text, limit = 200 }: { text: string; limit?: number }) => (
  <code data-raw>{marked(shorten(text, limit))}</code>
);
