// JSON that is read, shown and sent back without a change of its numbers, and where a wrong text is wrong.
//
// A number such as 9007199254740993 or 1.0 would come back as another one. Where the browser can, such numbers keep their text.

import { isObject, type Json } from "./json.ts";

interface Exact {
  parse(text: string, reviver: (name: string, value: unknown, context?: { source?: string }) => unknown): Json;
  rawJSON?(text: string): unknown;
}

const exact = JSON as unknown as Exact;

export const parseExact = (text: string): Json =>
  exact.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && exact.rawJSON && String(value) !== context.source ? exact.rawJSON(context.source) : value,
  );

/**
 * A value in which the members with some names keep the text of their numbers, at any depth; in all others numbers are what can be
 * reckoned with.
 */
export function parseWithExact(text: string, names: readonly string[]): unknown {
  const value = JSON.parse(text) as Json;
  return names.length === 0 ? value : withExact(value, parseExact(text), names);
}

/** The first value with those members of the second, which is the same but keeps the text of its numbers. */
function withExact(value: Json, exact: Json, names: readonly string[]): Json {
  if (Array.isArray(value)) return value.map((item, index) => withExact(item, (exact as Json[])[index] ?? null, names));
  if (!isObject(value)) return value;
  const members = exact as { [name: string]: Json };
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, names.includes(name) ? (members[name] ?? null) : withExact(member, members[name] ?? null, names)]));
}

/** What is typed into a field of a number, such as `1.` on the way to `1.5`: the number as it is written, or the text if it is none. */
export function typedNumber(typed: string): Json | undefined {
  const text = typed.trim();
  if (text === "") return undefined;
  const written = text.replace(/^\+/, "").replace(/^(-?)0+(?=\d)/, "$1").replace(/^(-?)\./, "$10.").replace(/\.(?=$|e)/i, "");
  return /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(written) && Number.isFinite(Number(written)) ? parseExact(written) : typed;
}

/** Whether a number is whole as it is written, however large. */
export const isWhole = (value: Json): boolean => /^-?\d+(\.0*)?$/.test(JSON.stringify(value)) || Number.isInteger(Number(JSON.stringify(value)));

export type Parsed = { value: { [name: string]: Json } } | { error: string; at: number | null };

/** The object that a text holds, or what is wrong and at which character; null where the whole is wrong. */
export function parseMembers(text: string): Parsed {
  try {
    const value = parseExact(text);
    return isObject(value) ? { value } : { error: "", at: null };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error), at: errorAt(text) };
  }
}

const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const plainValue = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

/** The first character that cannot be part of JSON: browsers say it in different ways, or not at all. */
export function errorAt(source: string): number {
  let at = 0;
  const take = (...patterns: RegExp[]): boolean =>
    [/[ \t\r\n]*/y, ...patterns].some((pattern, index) => {
      pattern.lastIndex = at;
      if (pattern.test(source)) at = pattern.lastIndex;
      else return false;
      return index > 0;
    });
  const need = (...patterns: RegExp[]): void => {
    if (!take(...patterns)) throw new Error();
  };
  const members = (end: RegExp, member: () => void): void => {
    if (take(end)) return;
    do member();
    while (take(/,/y));
    need(end);
  };
  const value = (): void => {
    if (take(/\{/y)) members(/\}/y, () => (need(string), need(/:/y), value()));
    else if (take(/\[/y)) members(/\]/y, value);
    else need(string, plainValue);
  };
  try {
    value();
    take();
  } catch {
    // Also the end of the stack, in a text that is nested too deeply.
  }
  return at;
}

/** Line and column of a character, from 1. */
export function placeOf(source: string, at: number): [line: number, column: number] {
  const before = source.slice(0, at).split("\n");
  return [before.length, (before.at(-1) ?? "").length + 1];
}
