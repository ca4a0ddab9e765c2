import assert from "node:assert/strict";
import type { Json } from "../src/base/json.ts";
import { test } from "node:test";
import { canShow, fieldOf, initialValue, optionOf, pointerOf, valueAt, withAt, withoutMasked } from "../src/base/form.ts";

const kind = (schema: unknown, root: unknown = schema) => fieldOf(schema, root).kind;

test("each schema has a field, and what has none is a field for JSON", () => {
  const cases: [unknown, string][] = [
    [{ type: "string" }, "text"],
    [{ type: ["integer", "null"] }, "number"],
    [{ type: "boolean" }, "boolean"],
    [{ enum: ["a", 1] }, "enum"],
    [{ const: "a" }, "enum"],
    [{ type: "array", items: { type: "string" } }, "list"],
    [{ type: "array", prefixItems: [{}], items: {} }, "json"],
    [{ type: "array" }, "json"],
    [{ properties: { a: true } }, "object"],
    [{ type: "object", additionalProperties: { type: "string" } }, "json"],
    [{ oneOf: [{ type: "string" }, { type: "number" }] }, "choice"],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, "text"],
    [{ type: ["string", "number"] }, "json"],
    [{}, "json"], [true, "json"], [false, "json"], [null, "json"], [7, "json"], [{ not: {} }, "json"],
    [{ $ref: "#" }, "json"], [{ $ref: "https://elsewhere.example/x" }, "json"], [{ allOf: [{ $ref: "#" }] }, "json"],
  ];
  for (const [schema, expected] of cases) assert.equal(kind(schema), expected, JSON.stringify(schema));
});

test("references and allOf are followed, also in circles", () => {
  const root = {
    $defs: { name: { type: "string", description: "A name" }, node: { type: "object", properties: { next: { $ref: "#/$defs/node" }, label: { $ref: "#label" } }, required: ["label"] }, label: { $anchor: "label", type: "string" }, "a/b": { type: "boolean" } },
    allOf: [{ properties: { a: { $ref: "#/$defs/name", title: "A" } }, required: ["a"] }, { properties: { b: { $ref: "#/$defs/node" }, c: { $ref: "#/$defs/a~1b" } }, required: ["b"] }],
    type: "object",
  };
  const field = fieldOf(root, root);
  assert.ok(field.kind === "object");
  assert.deepEqual(field.members.map(({ name, isRequired }) => `${name} ${isRequired}`), ["a true", "b true", "c false"]);
  const [a, b, c] = field.members.map(({ schema }) => fieldOf(schema, root));
  assert.deepEqual([a?.title, a?.description, a?.kind, b?.kind, c?.kind], ["A", "A name", "text", "object", "boolean"]);
  assert.deepEqual(initialValue(root, root), { b: {} });
  const endless = { $defs: { a: { type: "object", properties: { a: { $ref: "#/$defs/a" } }, required: ["a"] } }, $ref: "#/$defs/a" };
  assert.ok(JSON.stringify(initialValue(endless, endless)).length < 100);
});

test("a form begins with defaults, single values and required objects", () => {
  const schema = { type: "object", required: ["o", "k"], properties: { units: { enum: ["m", "i"], default: "m" }, add: { type: ["string", "null"], default: null }, k: { const: "x" }, o: { properties: { n: { type: "integer", default: 3 } } }, p: { properties: {} } } };
  assert.deepEqual(initialValue(schema, schema), { units: "m", k: "x", o: { n: 3 } });
});

test("a choice shows the option that a value is meant for", () => {
  const options = [{ type: "string" }, { properties: { type: { const: "a" } }, required: ["type"] }, { properties: { type: { const: "b" } }, required: ["type"] }, { type: "array", items: {} }];
  assert.deepEqual([undefined, "x", { type: "b" }, { type: "a" }, [1]].map((value) => optionOf(options, {}, value)), [0, 0, 2, 1, 3]);
});

test("values are changed at a place and keep their order", () => {
  const value = { a: 1, list: [{ b: 2 }, 3] };
  assert.deepEqual(withAt(value, ["list", 0, "b"], "x"), { a: 1, list: [{ b: "x" }, 3] });
  assert.deepEqual(Object.keys(withAt(value, ["a"], 5) as object), ["a", "list"]);
  assert.deepEqual([withAt(value, ["a"], undefined), withAt(undefined, ["o", "n"], 1), withAt([1, 2], [0], undefined)], [{ list: value.list }, { o: { n: 1 } }, [2]]);
  assert.deepEqual([pointerOf(["a/b", 0, "c~d"]), canShow(fieldOf({ type: "integer" }, {}), [1]), canShow(fieldOf({ properties: { a: {} } }, {}), { b: 1 })], ["/a~1b/0/c~0d", false, false]);
});

test("masked values of a record are left out and named", () => {
  assert.deepEqual(withoutMasked({ key: "[redacted]", deep: [{ token: "[redacted]", n: 1 }] }), { value: { deep: [{ n: 1 }] }, masked: ["/key", "/deep/0/token"] });
});

test("options keep what is said around them, and null can be chosen wherever it is allowed", () => {
  const shared = { type: "object", properties: { kind: { type: "string" } }, required: ["kind"], oneOf: [{ title: "A", properties: { a: { type: "string" } }, required: ["a"] }, { properties: { b: {} } }] };
  const field = fieldOf(shared, shared);
  assert.ok(field.kind === "choice");
  const first = fieldOf(field.options[0], shared);
  assert.ok(first.kind === "object");
  assert.deepEqual([first.title, first.members.map(({ name, isRequired }) => `${name} ${isRequired}`)], ["A", ["kind true", "a true"]]);
  // These only say which of the members must be there.
  assert.equal(kind({ properties: { a: {}, b: {} }, anyOf: [{ required: ["a"] }, { required: ["b"] }] }), "object");
  const nulls: [unknown, boolean][] = [[{ enum: ["a", null] }, true], [{ enum: ["a", null], type: "string" }, false], [{ type: ["string", "null"] }, true], [{ anyOf: [{ type: "integer" }, { type: "null" }] }, true]];
  for (const [schema, expected] of nulls) assert.equal(fieldOf(schema, schema).isNullable, expected, JSON.stringify(schema));
  const only = fieldOf({ type: "null" }, {});
  assert.deepEqual(only.kind === "enum" && only.options, [null]);
});

test("values are found by their pointers", () => {
  assert.deepEqual([valueAt({ "a/b": [{ c: 1 }] }, "/a~1b/0/c"), valueAt({ a: 1 }, "/a/b"), valueAt([1], "/length")], [1, undefined, undefined]);
});

test("whatever a schema says, a form comes of it, and it ends", () => {
  // Not random: a failure comes again.
  let seed = 7;
  const pick = <T>(list: readonly T[]): T => list[(seed = (seed * 1103515245 + 12345) % 2147483648) % list.length] as T;
  const some = (depth: number): unknown => {
    if (depth === 0) return pick([true, false, {}, { type: "string" }, { $ref: "#" }, { $ref: "#/$defs/x" }, { $ref: "#/$defs/gone" }, null, 1, "x", []]);
    const part = () => some(depth - 1);
    return pick([
      () => ({ type: pick(["object", ["object", "null"], undefined]), properties: { a: part(), __proto__x: part(), "b/c~": part() }, required: pick([["a"], [], "a", ["a", 1]]) }),
      () => ({ allOf: [part(), part()], properties: pick([{ d: part() }, null, []]) }),
      () => ({ [pick(["oneOf", "anyOf"])]: pick([[part(), { type: "null" }], [part(), part()], [], part()]) }),
      () => ({ type: "array", items: part(), prefixItems: pick([undefined, [part()]]) }),
      () => ({ enum: pick([[], [null], [1, "a", { b: 1 }], "a"]), default: pick([1, null, "x", { a: 1 }]) }),
      () => ({ type: pick(["integer", "number", "boolean", "string", "null", "what", ["string", "integer"], 3]), default: pick([undefined, 3, "x", []]), format: pick(["date", 4]) }),
      () => ({ $ref: pick(["#/$defs/x", "#", "#/%", "https://x.example/y"]), title: "t", not: part(), if: part(), then: part() }),
    ])();
  };
  const walk = (schema: unknown, root: unknown, depth: number): void => {
    const field = fieldOf(schema, root);
    if (depth === 0) return;
    const inner = field.kind === "object" ? field.members.map((member) => member.schema) : field.kind === "list" ? [field.items] : field.kind === "choice" ? field.options : [];
    for (const one of inner) walk(one, root, depth - 1);
    for (const value of [undefined, null, 1, "x", [], {}, { a: 1 }] as (Json | undefined)[]) {
      canShow(field, value);
      if (field.kind === "choice") assert.ok(optionOf(field.options, root, value) < field.options.length);
    }
  };
  for (let round = 0; round < 2_000; round++) {
    const root = { $defs: { x: some(2) }, ...(some(3) as object) };
    walk(root, root, 4);
    const value = initialValue(root, root);
    assert.ok(value === undefined || JSON.stringify(value).length < 100_000);
  }
});
