// The difference of two texts, line by line; unchanged lines far from a change are left out.

import { diffLines } from "../base/diff.ts";
import { shorten } from "../base/text.ts";
import { texts } from "../i18n/index.ts";
import { Raw } from "./raw.tsx";

const around = 3;
const maxLines = 400;

export function Diff({ before, after }: { before: string; after: string }) {
  const t = texts.value.common;
  const lines = diffLines(before, after);
  if (lines.every(({ kind }) => kind === "same")) return <p class="quiet">{t.noDifference}</p>;
  const isNear = (index: number) => lines.slice(Math.max(0, index - around), index + around + 1).some(({ kind }) => kind !== "same");
  const signs = { same: " ", removed: "−", added: "+" };
  const names = { same: "", removed: t.removed, added: t.added };
  return (
    <div class="diff" role="group" aria-label={t.difference} tabIndex={0}>
      {lines.map((line, index) => ({ line, index })).filter(({ index }) => isNear(index)).slice(0, maxLines).map(({ line, index }) => (
        <div key={index} class={line.kind}>
          <span class="sign" aria-label={names[line.kind] || undefined} role={names[line.kind] ? "img" : undefined}>
            {signs[line.kind]}
          </span>
          <Raw text={shorten(line.text, 2000)} limit={2000} />
        </div>
      ))}
    </div>
  );
}
