// A JSON value as a tree that opens and closes. What is closed is not in the page, and long lists begin with a part.

import { useState } from "preact/hooks";
import { isObject, type Json } from "../base/json.ts";
import { texts } from "../i18n/index.ts";
import { Code, Raw } from "./raw.tsx";

const firstEntries = 100;
const moreEntries = 500;
/** What is open at first: small things near the top. */
const openDepth = 3;
const openEntries = 20;
const textLimit = 400;

export const Tree = ({ value, label }: { value: Json; label: string }) => (
  <div class="block tree" role="group" aria-label={label} tabIndex={0}>
    <Entries of={value} depth={0} />
  </div>
);

const entriesOf = (value: Json): [string, Json][] => (Array.isArray(value) ? value.map((inner, index) => [String(index), inner]) : isObject(value) ? Object.entries(value) : []);

function Entries({ of, depth }: { of: Json; depth: number }) {
  const [shown, show] = useState(firstEntries);
  const all = entriesOf(of);
  return (
    <>
      {all.slice(0, shown).map(([name, value]) => (
        <Entry key={name} name={name} value={value} depth={depth} />
      ))}
      {all.length > shown && (
        <button type="button" class="link" onClick={() => show(shown + moreEntries)}>
          {texts.value.tryIt.moreEntries(all.length - shown)}
        </button>
      )}
    </>
  );
}

function Entry({ name, value, depth }: { name: string; value: Json; depth: number }) {
  const size = entriesOf(value).length;
  const [isOpen, open] = useState(depth < openDepth && size <= openEntries);
  if (size === 0) {
    return (
      <div class="leaf">
        <Code text={name} />: <Leaf value={value} />
      </div>
    );
  }
  return (
    <details open={isOpen} onToggle={(event) => open(event.currentTarget.open)}>
      <summary>
        <Code text={name} /> <span class="quiet" data-raw>{Array.isArray(value) ? `[${size}]` : `{${size}}`}</span>
      </summary>
      {isOpen && <Entries of={value} depth={depth + 1} />}
    </details>
  );
}

/** A text in quotes, so that `"1"` is not taken for a number; a long one is shown whole on demand. */
function Leaf({ value }: { value: Json }) {
  const [limit, setLimit] = useState(textLimit);
  const text = JSON.stringify(value);
  return (
    <>
      <Raw text={typeof value === "string" ? `"${value}"` : text} limit={limit} />
      {text.length > limit && (
        <button type="button" class="link" onClick={() => setLimit(limit + 50_000)}>
          {texts.value.common.showMore(text.length - limit)}
        </button>
      )}
    </>
  );
}
