import assert from "node:assert/strict";
import { test } from "node:test";
import { errorAt, isWhole, parseExact, parseMembers, parseWithExact, placeOf, typedNumber } from "../src/base/exact-json.ts";
import { canShow, fieldOf, initialValue, valueAt, withAt, withoutMasked } from "../src/base/form.ts";
import { isNumber, isObject, type Json, schemaFields, valueText } from "../src/base/json.ts";
import { mergeJson, same } from "../src/base/merge.ts";

test("changes of two people come together, and mine counts where both changed one value", () => {
  const cases: [Json, Json, Json, Json, string[]][] = [
    [{ a: 1, b: 1 }, { a: 2, b: 1 }, { a: 1, b: 2 }, { a: 2, b: 2 }, []],
    [{ a: 1 }, { a: 2 }, { a: 3 }, { a: 2 }, ["/a"]],
    [{ a: 1, b: 1 }, { b: 1 }, { a: 1, b: 1, c: 1 }, { b: 1, c: 1 }, []],
    [{ a: 1 }, { a: 2 }, {}, { a: 2 }, ["/a"]],
    [{ a: 1 }, {}, { a: 2 }, {}, ["/a"]],
    [{ deep: { x: 1, y: 1 } }, { deep: { x: 2, y: 1 } }, { deep: { x: 1, y: 2 } }, { deep: { x: 2, y: 2 } }, []],
    [{ list: [1] }, { list: [1, 2] }, { list: [1, 3] }, { list: [1, 2] }, ["/list"]],
    [{}, { "a/b~": 1 }, { "a/b~": 2 }, { "a/b~": 1 }, ["/a~1b~0"]],
    [{}, { toString: 1 }, { constructor: 2 }, { constructor: 2, toString: 1 }, []],
    [{ a: { b: 1 } }, { a: { b: 1 } }, { a: 5 }, { a: 5 }, []],
  ];
  for (const [base, mine, theirs, value, clashes] of cases) assert.deepEqual(mergeJson(base, mine, theirs), { value, clashes });
  const proto = parseExact('{"__proto__": 1}');
  assert.equal(JSON.stringify(mergeJson({}, proto, { a: 1 }).value), '{"a":1,"__proto__":1}');
});

test("values are the same whatever the order of their members", () => {
  assert.ok(same({ a: 1, b: { c: [1] } }, { b: { c: [1] }, a: 1 }));
  assert.ok(!same({ a: undefined as never }, { b: 1 }));
  assert.ok(!same({ a: 1 }, { a: 1, b: 2 }));
});

test("a wrong text is wrong at its place", () => {
  const cases: [string, number][] = [
    ["", 0],
    ["{", 1],
    ['{"a": }', 6],
    ['{"a": 1,}', 8],
    ['{"a" 1}', 5],
    ['{"a": 1 "b": 2}', 8],
    ["[1, 2", 5],
    ['{"a": [1, {"b": tru}]}', 16],
    ['{"a": 01}', 6],
    ['{"a": "x\ny"}', 6],
    ["{} x", 3],
    ["{'a': 1}", 1],
    ['{"a": 1]', 7],
  ];
  for (const [text, at] of cases) {
    assert.equal(errorAt(text), at, text);
    assert.ok("error" in parseMembers(text), text);
  }
  assert.ok(errorAt("[".repeat(100_000)) > 0);
  // Where there is no error, the end of the text is reached.
  for (const text of ['{"a": [1, -2.5e+3, "\\u00e9\\n", {}, []], "b": null}\n', " [ ] ", "true"]) assert.equal(errorAt(text), text.length, text);
  assert.deepEqual(placeOf('{\n  "a": x\n}', 9), [2, 8]);
  assert.deepEqual(parseMembers("[1]"), { error: "", at: null });
});

test("numbers keep their text where the engine can", () => {
  const text = '{"a":9007199254740993,"b":[1.0,2],"c":1e3}';
  assert.equal(JSON.stringify(parseExact(text)), "rawJSON" in JSON ? text : '{"a":9007199254740992,"b":[1,2],"c":1000}');
});

test("numbers of arguments keep their text, and those of the answer around them can be reckoned with", () => {
  const answer = parseWithExact('{"durationMs": 2.0, "arguments": {"id": 9007199254740993, "ratio": 1.0}}', ["arguments", "output"]) as { durationMs: number; arguments: Json };
  assert.equal(answer.durationMs + 1, 3);
  assert.equal(JSON.stringify(answer.arguments), '{"id":9007199254740993,"ratio":1.0}');
  assert.deepEqual(parseWithExact("[1.0]", ["arguments"]), [1]);
  const list = '{"items":[{"seq":1,"calls":[{"arguments":{"id":9007199254740993,"__proto__":1.0}}]},{"seq":2,"__proto__":{"content":"a"}}]}';
  const page = parseWithExact(list, ["arguments"]) as { items: { seq: number }[] };
  assert.equal(JSON.stringify(page), "rawJSON" in JSON ? list : list.replace("993", "992").replace("1.0", "1"));
  assert.deepEqual(page.items.map(({ seq }) => seq), [1, 2]);
});

test("a form changes other members and leaves large numbers as they are", () => {
  const value = parseExact('{"id": 9007199254740993, "list": [1.0], "name": "a", "key": "[redacted]"}');
  assert.equal(JSON.stringify(withAt(value, ["name"], "b")), '{"id":9007199254740993,"list":[1.0],"name":"b","key":"[redacted]"}');
  assert.equal(JSON.stringify(withoutMasked(value).value), '{"id":9007199254740993,"list":[1.0],"name":"a"}');
  const id = valueAt(value, "/id");
  assert.deepEqual([isNumber(id), isObject(id), valueText(id), canShow(fieldOf({ type: "integer" }, {}), id)], [true, false, "9007199254740993", true]);
  const schema = parseExact('{"type": "object", "properties": {"n": {"type": "integer", "minimum": 1.0, "default": 9007199254740993}, "odd": {"type": [1.0], "$anchor": 2.0}}, "required": ["n"]}');
  assert.equal(JSON.stringify(initialValue(schema, schema)), '{"n":9007199254740993}');
  assert.deepEqual([schemaFields(schema)[0]?.limits, fieldOf(valueAt(schema, "/properties/n"), schema).limits], [["minimum 1.0"], ["minimum 1.0"]]);
  assert.equal(fieldOf(valueAt(schema, "/properties/odd"), schema).kind, "json");
});

test("a typed number is the number as it is written", () => {
  const cases: [string, string][] = [["9007199254740993", "9007199254740993"], ["1.0", "1.0"], ["1.", "1"], [".5", "0.5"], ["-.5", "-0.5"], ["+7", "7"], ["007", "7"], ["1.e3", "1e3"], ["-0", "-0"], ["1e400", '"1e400"'], ["0x10", '"0x10"'], ["1,5", '"1,5"']];
  for (const [typed, text] of cases) assert.equal(JSON.stringify(typedNumber(typed)), text, typed);
  assert.equal(typedNumber(" "), undefined);
  const whole: [string, boolean][] = [["9007199254740993", true], ["1.0", true], ["1e3", true], ["1.5", false]];
  for (const [text, expected] of whole) assert.equal(isWhole(parseExact(text)), expected, text);
});
