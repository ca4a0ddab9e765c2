// The difference of two texts, line by line; unchanged lines far from a change are left out.

import { useMemo, useState } from "preact/hooks";
import { diffLines, firstDifferences } from "../base/diff.ts";
import { cutAt } from "../base/text.ts";
import { texts } from "../i18n/index.ts";
import { Raw } from "./raw.tsx";

const around = 3;
const firstLines = 400;
const moreLines = 2_000;

export function Diff({ before, after }: { before: string; after: string }) {
  const t = texts.value.common;
  const [shown, show] = useState(firstLines);
  const lines = useMemo(() => diffLines(before, after), [before, after]);
  const differences = useMemo(() => firstDifferences(lines), [lines]);
  if (lines.every(({ kind }) => kind === "same")) return <p class="quiet">{t.noDifference}</p>;
  const isNear = (index: number) => lines.slice(Math.max(0, index - around), index + around + 1).some(({ kind }) => kind !== "same");
  const near = lines.map((line, index) => ({ line, index })).filter(({ index }) => isNear(index));
  const signs = { same: " ", removed: "−", added: "+" };
  const names = { same: "", removed: t.removed, added: t.added };
  return (
    <>
      <div class="diff" role="group" aria-label={t.difference} tabIndex={0}>
        {near.slice(0, shown).map(({ line, index }) => (
          <div key={index} class={line.kind}>
            <span class="sign" aria-label={names[line.kind] || undefined} role={names[line.kind] ? "img" : undefined}>
              {signs[line.kind]}
            </span>
            <Line text={line.text} difference={differences[index] ?? 0} />
          </div>
        ))}
      </div>
      {near.length > shown && (
        <button type="button" class="link" onClick={() => show(shown + moreLines)}>
          {t.showMoreLines(near.length - shown)}
        </button>
      )}
    </>
  );
}

const lineLength = 2_000;
const beforeDifference = 200;
const morePart = 50_000;

/** A long line begins with the part around its first difference; more of it is shown on demand. */
function Line({ text, difference }: { text: string; difference: number }) {
  const [more, showMore] = useState(0);
  if (text.length <= lineLength) return <Raw text={text} limit={lineLength} />;
  const begin = more > 0 ? 0 : cutAt(text, Math.max(0, Math.min(difference - beforeDifference, text.length - lineLength)));
  const end = cutAt(text, Math.min(text.length, more > 0 ? difference + lineLength + more * morePart : begin + lineLength));
  const rest = text.length - (end - begin);
  return (
    <span>
      {begin > 0 && "…"}
      <Raw text={text.slice(begin, end)} limit={text.length} />
      {end < text.length && "…"}{" "}
      {rest > 0 && (
        <button type="button" class="link" onClick={() => showMore(more + 1)}>
          {texts.value.common.showMore(rest)}
        </button>
      )}
    </span>
  );
}
