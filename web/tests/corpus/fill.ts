// Fills the form of a schema as a person would: each field gets a value of its kind, by the same steps as the page's fields.
//
// In: a schema. Out: the arguments, and the places that were filled as JSON because they have no field of their own.

import { canShow, emptyOf, fieldOf, type FormField, initialValue, optionOf, pointerOf, withAt } from "../../src/base/form.ts";
import { isObject, type Json } from "../../src/base/json.ts";
import { matching } from "./pattern.ts";

type Path = readonly (string | number)[];

export interface Filled {
  value: Json;
  /** JSON pointers of places without a field. */
  asJson: string[];
}

/** How a person fills in: only what is required, or more; which option of a choice; and what the server said to be wrong. */
export interface Manner {
  /** So many levels of optional members are filled, too. */
  optional: number;
  option: number;
  /** The first of the optional members is filled. */
  first?: boolean;
  /** JSON pointers of what is missing or wrong. */
  wrong?: ReadonlySet<string>;
}

const formats: Record<string, string> = {
  date: "2026-01-31", "date-time": "2026-01-31T12:00:00Z", time: "12:00:00Z", duration: "P1D", email: "name@example.org", "idn-email": "name@example.org",
  uri: "https://example.org/", url: "https://example.org/", iri: "https://example.org/", "uri-reference": "/a", "iri-reference": "/a", "uri-template": "/{a}",
  uuid: "6f1c2f3e-8a52-4a43-8f5e-1c2d3e4f5a6b", ipv4: "192.0.2.7", ipv6: "2001:db8::1", hostname: "example.org", "idn-hostname": "example.org",
  "json-pointer": "/a", "relative-json-pointer": "1/a", regex: "a+", byte: "YQ==", int64: "7", int32: "7", decimal: "1.5", "unix-time": "1",
};

export class Form {
  value: Json;
  readonly asJson: string[] = [];
  private readonly root: Json;
  private readonly manner: Manner;

  constructor(root: Json, manner: Manner) {
    this.root = root;
    this.manner = manner;
    this.value = initialValue(root, root) ?? {};
  }

  fill(): Filled {
    const field = fieldOf(this.root, this.root);
    if (field.kind === "object") this.members(field, []);
    else this.json(this.root, []);
    return { value: this.value, asJson: this.asJson };
  }

  private set(path: Path, value: Json | undefined): void {
    this.value = withAt(this.value, path, value) ?? {};
  }

  private at(path: Path): Json | undefined {
    return path.reduce<Json | undefined>((value, part) => (Array.isArray(value) ? value[Number(part)] : isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined), this.value);
  }

  private members(field: FormField & { kind: "object" }, path: Path): void {
    const { optional, first, wrong } = this.manner;
    for (const [index, { name, schema, isRequired }] of field.members.entries()) {
      if (isRequired || path.length < optional || (first && index === 0) || wrong?.has(pointerOf([...path, name]))) this.place(schema, [...path, name]);
    }
  }

  private place(schema: unknown, path: Path): void {
    const described = fieldOf(schema, this.root);
    // What the form offers has to show what it holds, for example a default.
    if (!canShow(described, this.at(path)) || path.length > 12) return this.json(schema, path);
    if (described.kind === "choice") {
      const index = this.manner.option % described.options.length;
      const option = described.options[index];
      this.set(path, initialValue(option, this.root) ?? undefined);
      this.entered(option, fieldOf(option, this.root), path);
      const shown = optionOf(described.options, this.root, this.at(path));
      if (!canShow(fieldOf(described.options[shown], this.root), this.at(path))) throw new Error(`no option of ${pointerOf(path)} shows ${JSON.stringify(this.at(path))}`);
    } else this.entered(schema, described, path);
  }

  private entered(schema: unknown, field: FormField, path: Path): void {
    const before = this.manner.wrong?.has(pointerOf(path)) ? undefined : this.at(path);
    switch (field.kind) {
      case "object":
        if (!isObject(before)) this.set(path, initialValue(schema, this.root) ?? {});
        this.members(field, path);
        break;
      case "list": {
        const facts = flat(schema, this.root);
        const wanted = Math.max(Number(facts.minItems ?? 0), path.length < this.manner.optional ? 1 : 0);
        if (!Array.isArray(before)) this.set(path, []);
        for (let index = 0; index < wanted; index++) {
          this.set([...path, index], initialValue(field.items, this.root) ?? emptyOf(field.items, this.root));
          this.place(field.items, [...path, index]);
          if (facts.uniqueItems && index > 0) this.set([...path, index], another(this.at([...path, index]), index, fieldOf(field.items, this.root)));
        }
        break;
      }
      case "choice":
        this.place(schema, path);
        break;
      case "enum":
        if (before === undefined) this.set(path, field.options[0] ?? null);
        break;
      case "boolean":
        if (before === undefined || before === null) this.set(path, true);
        break;
      case "text":
        if (before === undefined || before === "") this.set(path, text(flat(schema, this.root)));
        break;
      case "number":
        if (before === undefined || before === "") this.set(path, number(flat(schema, this.root), field.isInteger));
        break;
      case "json":
        this.json(schema, path);
    }
    if (!canShow(field, this.at(path))) throw new Error(`the field of ${pointerOf(path)} does not show ${JSON.stringify(this.at(path))}`);
  }

  private json(schema: unknown, path: Path): void {
    this.asJson.push(pointerOf(path));
    if (path.length === 0 || this.at(path) === undefined || this.at(path) === null) this.set(path, instance(schema, this.root, this.manner.option));
  }
}

function text(facts: Record<string, Json>): string {
  const [least, most] = [Number(facts.minLength ?? 0), Number(facts.maxLength ?? 10_000)];
  if (typeof facts.pattern === "string") return matching(facts.pattern, least).padEnd(least, "x").slice(0, most);
  return (formats[String(facts.format)] ?? "text").padEnd(least, "x").slice(0, most) || "x".slice(0, most);
}

function number(facts: Record<string, Json>, isInteger: boolean): number {
  const step = Number(facts.multipleOf ?? (isInteger ? 1 : 0.5));
  const low = Number(facts.minimum ?? (facts.exclusiveMinimum !== undefined ? Number(facts.exclusiveMinimum) + step : Math.min(step, Number(facts.maximum ?? facts.exclusiveMaximum ?? step) - (facts.exclusiveMaximum !== undefined ? step : 0))));
  return Math.ceil(low / step) * step;
}

/** Another value of the same kind. */
function another(value: Json | undefined, index: number, field: FormField): Json {
  if (field.kind === "enum" && field.options[index] !== undefined) return field.options[index];
  return typeof value === "number" ? value + index : typeof value === "string" ? value + index : (value ?? null);
}

/** A schema with its references and `allOf` in one object: what a person reads about a place. */
export function flat(schema: unknown, root: Json, depth = 0): Record<string, Json> {
  if (!isObject(schema) || depth > 20) return {};
  const { $ref, allOf, ...own } = schema;
  const parts: unknown[] = Array.isArray(allOf) ? [...allOf] : [];
  if (typeof $ref === "string") parts.unshift($ref.split("/").slice(1).reduce<unknown>((found, part) => (isObject(found) ? found[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")] : undefined), root));
  return parts.map((part) => flat(part, root, depth + 1)).reduceRight<Record<string, Json>>((both, part) => ({
    ...part, ...both,
    ...((part.properties || both.properties) && { properties: { ...(part.properties as object), ...(both.properties as object) } }),
    ...((part.required || both.required) && { required: [...((part.required as Json[]) ?? []), ...((both.required as Json[]) ?? [])] }),
  }), own);
}

/** A value of a schema, for a person who writes JSON. */
export function instance(schema: unknown, root: Json, option = 0, depth = 0): Json {
  const facts = flat(schema, root);
  if (facts.const !== undefined) return facts.const;
  if (Array.isArray(facts.enum)) return facts.enum[0] ?? null;
  const example = facts.default ?? facts.example ?? (Array.isArray(facts.examples) ? facts.examples[0] : undefined);
  if (example !== undefined && example !== null && depth === 0) return example;
  const options = (facts.oneOf ?? facts.anyOf) as Json[] | undefined;
  if (options && depth < 12) {
    const { oneOf: _one, anyOf: _any, ...rest } = facts;
    return instance({ allOf: [options[option % options.length] ?? {}, rest] }, root, option, depth + 1);
  }
  const types = [facts.type ?? []].flat() as string[];
  const type = types.find((one) => one !== "null") ?? types[0] ?? (facts.properties || facts.required || facts.additionalProperties ? "object" : facts.items || facts.prefixItems ? "array" : "string");
  if (type === "null") return null;
  if (type === "boolean") return true;
  if (type === "integer" || type === "number") return number(facts, type === "integer");
  if (type === "string") return text(facts);
  if (type === "array") {
    const items = ((facts.prefixItems as Json[]) ?? []).map((item) => instance(item, root, option, depth + 1));
    while (items.length < Number(facts.minItems ?? 0) && items.length < 50) items.push(instance(facts.items ?? {}, root, option, depth + 1));
    return items;
  }
  const properties = (facts.properties ?? {}) as Record<string, Json>;
  const required = ((facts.required ?? []) as string[]).map((name) => [name, depth > 12 ? null : instance(properties[name] ?? {}, root, option, depth + 1)] as const);
  const more = Array.from({ length: Math.max(0, Number(facts.minProperties ?? 0) - required.length) }, (_, index) => [`key${index}`, instance(facts.additionalProperties ?? {}, root, option, depth + 1)] as const);
  return Object.fromEntries([...required, ...more]);
}
