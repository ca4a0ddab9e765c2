// JSON values as text, and small facts about JSON Schemas.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

// A number that kept its text is an object of the engine; see exact-json.ts.
const isRaw = (value: unknown): boolean => (JSON as { isRawJSON?(value: unknown): boolean }).isRawJSON?.(value) ?? false;

export const isObject = (value: unknown): value is { [name: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isRaw(value);

/** Also one that kept its text. */
export const isNumber = (value: unknown): boolean => typeof value === "number" || isRaw(value);

export const pretty = (value: unknown): string => JSON.stringify(value, null, 2) ?? "";

/** A value for a person: texts as they are, anything else as JSON. */
export const valueText = (value: unknown): string => (typeof value === "string" ? value : pretty(value));

/** The type that a schema asks for, in a few words of JSON Schema. */
export function schemaType(schema: unknown): string {
  if (!isObject(schema)) return "";
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  const type = Array.isArray(schema.type) ? schema.type.map(valueText).join(" | ") : typeof schema.type === "string" ? schema.type : "";
  if (type === "array") return `${schemaType(schema.items) || "any"}[]`;
  if (type) return typeof schema.format === "string" ? `${type} (${schema.format})` : type;
  const options = schema.anyOf ?? schema.oneOf;
  return Array.isArray(options) ? options.map(schemaType).filter(Boolean).join(" | ") : "";
}

export interface Field {
  name: string;
  type: string;
  description: string;
  required: boolean;
  /** Limits such as `minimum 1`, as JSON Schema names them. */
  limits: string[];
  default?: Json;
}

const limitNames = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "multipleOf"];

/** The members that a schema of an object declares. */
export function schemaFields(schema: unknown): Field[] {
  if (!isObject(schema) || !isObject(schema.properties)) return [];
  const required = Array.isArray(schema.required) ? schema.required : [];
  return Object.entries(schema.properties).map(([name, member]) => {
    const facts = isObject(member) ? member : {};
    const field: Field = {
      name,
      type: schemaType(member),
      description: typeof facts.description === "string" ? facts.description : "",
      required: required.includes(name),
      limits: limitNames.filter((limit) => limit in facts).map((limit) => `${limit} ${valueText(facts[limit])}`),
    };
    if (facts.default !== undefined && facts.default !== null) field.default = facts.default;
    return field;
  });
}
