// What a JSON Schema asks for, as fields of a form.
//
// In: a schema of 2020-12 and the whole schema it is part of, for its references. Out: the kind of field, its words and its
// limits. What has no field of its own becomes a field for JSON, so that every value can be given; the server validates.

import { isNumber, isObject, type Json, valueText } from "./json.ts";

export interface Member {
  name: string;
  schema: unknown;
  isRequired: boolean;
}

export type FieldKind =
  | { kind: "text"; format: string }
  | { kind: "number"; isInteger: boolean }
  | { kind: "boolean" }
  | { kind: "enum"; options: Json[] }
  | { kind: "object"; members: Member[] }
  | { kind: "list"; items: unknown }
  | { kind: "choice"; options: unknown[] }
  | { kind: "json" };

export type FormField = FieldKind & {
  title: string;
  description: string;
  isNullable: boolean;
  default?: Json;
  /** Such as `minimum 1`. */
  limits: string[];
};

type Schema = { [name: string]: Json };

const limitNames = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"];

/** References in a row; more of them are a circle. */
const maxReferences = 16;

function dereference(schema: unknown, root: unknown): Schema {
  let current = schema;
  let siblings: Schema = {};
  for (let step = 0; step < maxReferences && isObject(current) && typeof current.$ref === "string"; step++) {
    const { $ref, ...rest } = current;
    siblings = { ...rest, ...siblings };
    current = target(String($ref), root);
  }
  return isObject(current) && !("$ref" in current) ? { ...current, ...siblings } : siblings;
}

/** What a reference inside the document names: a pointer, or an `$anchor` or `$id` of a definition. */
function target(reference: string, root: unknown): unknown {
  if (reference === "#") return root;
  if (reference.startsWith("#/")) {
    let found: unknown = root;
    for (const part of reference.slice(2).split("/")) {
      const name = decode(part).replaceAll("~1", "/").replaceAll("~0", "~");
      found = Array.isArray(found) ? found[Number(name)] : isObject(found) ? found[name] : undefined;
    }
    return found;
  }
  const definitions = isObject(root) ? root.$defs : undefined;
  const all = isObject(definitions) ? Object.values(definitions) : [];
  return all.find((one) => isObject(one) && (`#${valueText(one.$anchor)}` === reference || one.$id === reference));
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The parts of `allOf` as one schema; members that several of them name hold in all of them, the last one words them. */
function merged(schema: Schema, root: unknown, depth = 0): Schema {
  if (!Array.isArray(schema.allOf) || depth > 8) return schema;
  const { allOf, ...own } = schema;
  return [...allOf.map((part) => merged(dereference(part, root), root, depth + 1)), own].reduce<Schema>((before, part) => {
    const both: Schema = { ...before, ...part };
    if (isObject(before.properties) && isObject(part.properties)) both.properties = { ...before.properties, ...part.properties };
    if (Array.isArray(before.required) && Array.isArray(part.required)) both.required = [...new Set([...before.required, ...part.required])];
    return both;
  }, {});
}

const isNull = (schema: unknown): boolean => isObject(schema) && (schema.type === "null" || schema.const === null);

/** The field for a schema. `root` is the document in which references are looked up. */
export function fieldOf(schema: unknown, root: unknown, depth = 0): FormField {
  const facts = merged(dereference(schema, root), root);
  const options = Array.isArray(facts.oneOf) ? facts.oneOf : Array.isArray(facts.anyOf) ? facts.anyOf : null;
  if (options && (!isObject(facts.properties) || options.some((option) => addsMembers(option, facts.properties, root)))) {
    const real = options.filter((option) => !isNull(dereference(option, root)));
    const { oneOf: _one, anyOf: _any, ...rest } = facts;
    const isNullable = real.length < options.length;
    // An only option may lead back to where it stands.
    if (real.length === 1 && depth < maxReferences / 2) {
      const inner = fieldOf({ allOf: [real[0] ?? {}, rest] }, root, depth + 1);
      return { ...inner, isNullable: inner.isNullable || isNullable };
    }
    if (real.length > 0) {
      const { title: _title, description: _description, default: _default, ...shared } = rest;
      return { ...wordsOf(facts), isNullable, kind: "choice", options: Object.keys(shared).some((name) => shapes.includes(name)) ? real.map((option) => ({ allOf: [shared, option] })) : real };
    }
  }
  const types = Array.isArray(facts.type) ? facts.type : typeof facts.type === "string" ? [facts.type] : [];
  const real = types.filter((type) => type !== "null");
  const isNullable = types.includes("null") || (types.length === 0 && Array.isArray(facts.enum) && facts.enum.includes(null));
  return { ...wordsOf(facts), isNullable, ...(types.length > 0 && real.length === 0 ? { kind: "enum", options: [null] } : kindOf(facts, real.length === 1 ? valueText(real[0]) : "")) };
}

/** What all options of a choice have in common, beside their words. */
const shapes = ["type", "properties", "required", "items"];

/** Whether an option of a choice has members that the object around it has not. */
function addsMembers(option: unknown, members: Json | undefined, root: unknown): boolean {
  const { properties } = merged(dereference(option, root), root);
  return isObject(properties) && Object.keys(properties).some((name) => !isObject(members) || !Object.hasOwn(members, name));
}

function wordsOf(facts: Schema): Pick<FormField, "title" | "description" | "default" | "limits"> {
  return {
    title: typeof facts.title === "string" ? facts.title : "",
    description: typeof facts.description === "string" ? facts.description : "",
    limits: limitNames.filter((name) => name in facts).map((name) => `${name} ${valueText(facts[name])}`),
    ...(facts.default !== undefined && { default: facts.default }),
  };
}

function kindOf(facts: Schema, type: string): FieldKind {
  if ("const" in facts) return { kind: "enum", options: [facts.const ?? null] };
  if (Array.isArray(facts.enum)) return { kind: "enum", options: facts.enum.filter((option) => option !== null) };
  if (type === "string") return { kind: "text", format: typeof facts.format === "string" ? facts.format : "" };
  if (type === "integer" || type === "number") return { kind: "number", isInteger: type === "integer" };
  if (type === "boolean") return { kind: "boolean" };
  if (type === "array" && isObject(facts.items) && !("prefixItems" in facts)) return { kind: "list", items: facts.items };
  if ((type === "object" || type === "") && isObject(facts.properties)) {
    const { properties, additionalProperties } = facts;
    const required = (Array.isArray(facts.required) ? facts.required : []).filter((name) => typeof name === "string");
    const members = Object.entries(properties).map(([name, schema]) => ({ name, schema, isRequired: required.includes(name) }));
    // Some descriptions require what they do not describe.
    const others = required.filter((name) => !Object.hasOwn(properties, name)).map((name) => ({ name, schema: isObject(additionalProperties) ? additionalProperties : {}, isRequired: true }));
    return { kind: "object", members: [...members, ...others].sort((a, b) => Number(b.isRequired) - Number(a.isRequired)) };
  }
  return { kind: "json" };
}

/** Objects in objects that are filled in at first. */
const maxDepth = 6;

/** The value a form begins with: defaults, what only one value fits, and required objects. Undefined: nothing yet. */
export function initialValue(schema: unknown, root: unknown, depth = 0): Json | undefined {
  const field = fieldOf(schema, root);
  if (field.default !== undefined && field.default !== null && (field.kind !== "enum" || canShow(field, field.default))) return field.default;
  if (field.kind === "enum" && field.options.length === 1) return field.options[0];
  if (field.kind !== "object" || depth > maxDepth) return undefined;
  const entries = field.members.flatMap(({ name, schema: member, isRequired }) => {
    const inner = isRequired || hasDefault(member, root) ? initialValue(member, root, depth + 1) : undefined;
    return inner === undefined ? [] : [[name, inner] as const];
  });
  return Object.fromEntries(entries);
}

function hasDefault(schema: unknown, root: unknown): boolean {
  const { default: value } = fieldOf(schema, root);
  return value !== undefined && value !== null;
}

/** What is there before anything was entered, where something must be. */
export function emptyOf(schema: unknown, root: unknown, depth = 0): Json {
  const field = fieldOf(schema, root);
  switch (field.kind) {
    case "list":
      return [];
    case "object":
      return {};
    case "text":
    case "number":
      return "";
    case "boolean":
      return false;
    case "enum":
      return field.options[0] ?? null;
    case "choice":
      return depth > maxDepth ? null : (initialValue(field.options[0], root) ?? emptyOf(field.options[0], root, depth + 1));
    case "json":
      return null;
  }
}

/** Whether the field can show the value; what it cannot show is edited as JSON at that place. */
export function canShow(field: FormField, value: Json | undefined): boolean {
  if (value === undefined || (value === null && field.isNullable)) return true;
  switch (field.kind) {
    case "text":
      return typeof value === "string";
    case "number":
      return isNumber(value) || typeof value === "string";
    case "boolean":
      return typeof value === "boolean";
    case "enum":
      return field.options.some((option) => JSON.stringify(option) === JSON.stringify(value));
    case "object":
      return isObject(value) && Object.keys(value).every((name) => field.members.some((member) => member.name === name));
    case "list":
      return Array.isArray(value);
    default:
      return true;
  }
}

/** Which option of a choice a value is meant for; 0 if none can show it. */
export function optionOf(options: readonly unknown[], root: unknown, value: Json | undefined): number {
  if (value === undefined) return 0;
  const score = (option: unknown): number => {
    const field = fieldOf(option, root);
    if (field.kind === "json") return 1;
    if (!canShow(field, value) || (field.kind === "number" && typeof value === "string")) return 0;
    // A member with only one value, such as `type`, tells objects apart.
    if (field.kind !== "object" || !isObject(value)) return 2;
    const wrong = field.members.some(({ name, schema, isRequired }) => (Object.hasOwn(value, name) ? !canShow(fieldOf(schema, root), value[name]) : isRequired));
    return wrong ? 1.5 : 3;
  };
  const scores = options.map(score);
  return Math.max(0, scores.indexOf(Math.max(...scores)));
}

/** A copy of a value with another one at a place; undefined removes a member. */
export function withAt(value: Json | undefined, path: readonly (string | number)[], change: Json | undefined): Json | undefined {
  const [first, ...rest] = path;
  if (first === undefined) return change;
  if (typeof first === "number") {
    const list = Array.isArray(value) ? [...value] : [];
    const inner = withAt(list[first], rest, change);
    if (inner === undefined) list.splice(first, 1);
    else list[first] = inner;
    return list;
  }
  const { [first]: found, ...others } = isObject(value) ? value : {};
  // Not what every object inherits, such as `constructor`.
  const isThere = isObject(value) && Object.hasOwn(value, first);
  const inner = withAt(isThere ? found : undefined, rest, change);
  if (inner === undefined) return others;
  // In its old place, so that the JSON does not jump while one types.
  return isThere ? Object.fromEntries(Object.entries(value).map(([name, old]) => [name, name === first ? inner : old])) : { ...others, [first]: inner };
}

/** The value at a JSON pointer. */
export function valueAt(value: Json | undefined, pointer: string): Json | undefined {
  const parts = pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  return parts.reduce<Json | undefined>((found, part) => (Array.isArray(found) ? found[Number(part)] : isObject(found) && Object.hasOwn(found, part) ? found[part] : undefined), value);
}

export const pointerOf = (path: readonly (string | number)[]): string => path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

/** Takes masked values out of recorded arguments, and says where they were: they must be entered again. */
export function withoutMasked(value: Json, at = ""): { value: Json | undefined; masked: string[] } {
  if (value === "[redacted]") return { value: undefined, masked: [at] };
  if (!Array.isArray(value) && !isObject(value)) return { value, masked: [] };
  const masked: string[] = [];
  const keep = (inner: Json, name: string | number): Json | undefined => {
    const found = withoutMasked(inner, at + pointerOf([name]));
    masked.push(...found.masked);
    return found.value;
  };
  if (Array.isArray(value)) return { value: value.map((inner, index) => keep(inner, index) ?? null), masked };
  const members = Object.entries(value).flatMap(([name, inner]) => {
    const kept = keep(inner, name);
    return kept === undefined ? [] : [[name, kept] as const];
  });
  return { value: Object.fromEntries(members), masked };
}
