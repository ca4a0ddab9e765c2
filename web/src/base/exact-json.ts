// JSON that is read, shown and sent back without a change of its numbers, and where a wrong text is wrong.
//
// A number such as 9007199254740993 or 1.0 would come back as another one. Where the browser can, such numbers keep their text.

import { isObject, type Json } from "./json.ts";

interface Exact {
  parse(text: string, reviver: (name: string, value: unknown, context?: { source?: string }) => unknown): Json;
  rawJSON?(text: string): unknown;
  isRawJSON?(value: unknown): boolean;
}

const exact = JSON as unknown as Exact;

export const parseExact = (text: string): Json =>
  exact.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && exact.rawJSON && String(value) !== context.source ? exact.rawJSON(context.source) : value,
  );

/** An object of JSON, and not a number that kept its text. */
export const isMembers = (value: unknown): value is { [name: string]: Json } => isObject(value) && !exact.isRawJSON?.(value);

export type Parsed = { value: { [name: string]: Json } } | { error: string; at: number | null };

/** The object that a text holds, or what is wrong and at which character; null where the whole is wrong. */
export function parseMembers(text: string): Parsed {
  try {
    const value = parseExact(text);
    return isMembers(value) ? { value } : { error: "", at: null };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error), at: errorAt(text) };
  }
}

const space = /[ \t\r\n]*/y;
const text = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const plainValue = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

/** The first character that cannot be part of JSON: browsers say it in different ways, or not at all. */
export function errorAt(source: string): number {
  let at = 0;
  const take = (pattern: RegExp): boolean => {
    pattern.lastIndex = at;
    if (!pattern.test(source)) return false;
    at = pattern.lastIndex;
    return true;
  };
  const sign = (...signs: string[]): string => {
    take(space);
    const found = signs.find((one) => source[at] === one) ?? "";
    at += found.length;
    return found;
  };
  // What is open: objects and lists. A loop instead of a recursion, because a text may be nested deeply.
  const open: string[] = [];
  const member = (): boolean => (take(space), take(text)) && sign(":") !== "";
  for (;;) {
    const start = sign("{", "[");
    if (start) {
      const end = start === "{" ? "}" : "]";
      if (!sign(end)) {
        open.push(end);
        if (start === "{" && !member()) return at;
        continue;
      }
    } else if (!take(text) && !take(plainValue)) return at;
    for (;;) {
      const end = open.at(-1);
      if (end === undefined) return take(space), at;
      const next = sign(end, ",");
      if (!next) return at;
      if (next === ",") {
        if (end === "}" && !member()) return at;
        break;
      }
      open.pop();
    }
  }
}

/** Line and column of a character, from 1. */
export function placeOf(source: string, at: number): [line: number, column: number] {
  const before = source.slice(0, at).split("\n");
  return [before.length, (before.at(-1) ?? "").length + 1];
}
