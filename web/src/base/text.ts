// Texts of tools are not trusted: they may hold control characters, change the reading direction, or be huge.

/** A piece of a text: as it is, or one character that must be shown by its code point. */
export type Piece = { text: string } | { mark: string; name: string };

// C0 and C1 controls without tab, line feed and carriage return; line and paragraph separators; bidi controls; all that
// Unicode lets a font leave out, such as fillers, tags and variation selectors; the empty braille pattern. Only the selector that
// belongs to an emoji stays, because it says nothing but how that is drawn.
const hidden = /(?!(?<=\p{Extended_Pictographic})\ufe0f)[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u2028-\u202e\u2800\ufff9-\ufffb\p{Default_Ignorable_Code_Point}]/gu;

export function pieces(text: string): Piece[] {
  const result: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(hidden)) {
    if (match.index > from) result.push({ text: text.slice(from, match.index) });
    const code = match[0].codePointAt(0) ?? 0;
    const hex = code.toString(16).toUpperCase().padStart(4, "0");
    result.push({ mark: code === 0x1b ? "ESC" : `U+${hex}`, name: `U+${hex}` });
    from = match.index + match[0].length;
  }
  if (from < text.length) result.push({ text: text.slice(from) });
  return result;
}

/** The same for places that take only text, such as titles of windows. */
export const plain = (text: string): string => pieces(text).map((piece) => ("text" in piece ? piece.text : `[${piece.mark}]`)).join("");

/** A place at or before `at` that is not within a pair of surrogates. */
export function cutAt(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return at < text.length && last >= 0xd800 && last < 0xdc00 ? at - 1 : at;
}

/** At most `limit` characters, without cutting a pair of surrogates. */
export function shorten(text: string, limit: number): string {
  if (text.length <= limit) return text;
  return text.slice(0, cutAt(text, limit)) + "…";
}

/** What is shown of a long text: up to a place, and from a place on. Both are the same once all of it is shown. */
export interface Shown {
  head: number;
  tail: number;
}

const wholeUpTo = 20_000;
const endLength = 2_000;
const moreLength = 50_000;

/** The beginning and the end of a huge text, since what counts may stand last; the whole of any other. `more` was asked for so often. */
export function shownOf(text: string, more: number): Shown {
  const head = text.length <= wholeUpTo ? text.length : Math.min(text.length, endLength + more * moreLength);
  const tail = Math.max(head, text.length - endLength);
  return head >= tail ? { head: text.length, tail: text.length } : { head: cutAt(text, head), tail: cutAt(text, tail) };
}

/** Whether a value must be opened before a person may allow it. */
export const isLong = (text: string): boolean => text.length > 400 || text.split("\n", 13).length > 12;
