// Puts the changes of one person on top of those of another, member by member; other values are whole.

import { isObject, type Json } from "./json.ts";

export interface Merged {
  value: Json;
  /** Where both changed a value in different ways, as JSON pointers: the value is mine. */
  clashes: string[];
}

export function mergeJson(base: Json, mine: Json, theirs: Json): Merged {
  const clashes: string[] = [];
  return { value: merge(base, mine, theirs, "", clashes) ?? null, clashes };
}

/** Undefined stands for a member that is not there. */
type Member = Json | undefined;

const member = (object: Member, name: string): Member => (isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined);

/** Whether two values are the same; the order of members does not count. */
export function same(one: Member, other: Member): boolean {
  if (one === other) return true;
  if (!isObject(one) || !isObject(other)) return JSON.stringify(one) === JSON.stringify(other);
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

function merge(base: Member, mine: Member, theirs: Member, path: string, clashes: string[]): Member {
  if (same(mine, base)) return theirs;
  if (same(theirs, base) || same(mine, theirs)) return mine;
  if (!isObject(mine) || !isObject(theirs)) {
    clashes.push(path || "/");
    return mine;
  }
  const names = new Set([...Object.keys(theirs), ...Object.keys(mine)]);
  const merged = [...names].map((name) => {
    const pointer = `${path}/${name.replace(/~/g, "~0").replace(/\//g, "~1")}`;
    return [name, merge(member(base, name), member(mine, name), member(theirs, name), pointer, clashes)] as const;
  });
  return Object.fromEntries(merged.filter(([, value]) => value !== undefined)) as Json;
}
