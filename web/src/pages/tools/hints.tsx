// What a tool says about the effects of its calls, and whose word that is.

import type { Tool } from "../../api/types.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";

export function Hints({ tool }: { tool: Tool }) {
  const t = texts.value.hints;
  const { readOnly, destructive, idempotent, openWorld } = tool.annotations;
  const words: [string, boolean][] = readOnly
    ? [[t.readOnly, false]]
    : [
        [destructive ? t.destructive : t.changes, destructive],
        [idempotent ? t.idempotent : t.notIdempotent, false],
      ];
  if (openWorld) words.push([t.openWorld, false]);
  return (
    <p class="hints">
      <span class="tag" data-raw>
        {tool.kind}
      </span>
      {words.map(([word, isDestructive]) => (
        <span key={word} class={isDestructive ? "tag grave" : "tag"}>
          {word}
        </span>
      ))}
      {(tool.metadata.tags ?? []).slice(0, 8).map((tag) => (
        <span key={tag} class="tag plain">
          <Raw text={tag} limit={40} />
        </span>
      ))}
      <Word tool={tool} />
    </p>
  );
}

/** Hints of a server are its own claim; those of the config or code are the owner's. */
export function Word({ tool }: { tool: Tool }) {
  const t = texts.value.hints;
  return (
    <span class="quiet">
      {tool.origin ? (
        <>
          {t.saysSource} <Code text={tool.origin.source} limit={80} />
        </>
      ) : (
        t.saysOwner
      )}
    </span>
  );
}
