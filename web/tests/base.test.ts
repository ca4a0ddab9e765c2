import { timeTicks, valueTicks } from "../src/base/axis.ts";
import { linePath, pointsPath } from "../src/base/line-path.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { diffLines, firstDifferences } from "../src/base/diff.ts";
import { bytes, countdown, duration, knownZone, number, percent } from "../src/base/format.ts";
import { schemaFields, schemaType } from "../src/base/json.ts";
import { closest, search } from "../src/base/match.ts";
import { SseParser } from "../src/base/sse.ts";
import { isLong, pieces, plain, shorten, shownOf } from "../src/base/text.ts";

test("hidden characters are shown by their code, others stay", () => {
  assert.deepEqual(pieces("a\u202Eb"), [{ text: "a" }, { mark: "U+202E", name: "U+202E" }, { text: "b" }]);
  assert.equal(plain("\u001b[31mred\u0007"), "[ESC][31mred[U+0007]");
  assert.equal(plain("zero\u200bwidth \u{e0041}tag"), "zero[U+200B]width [U+E0041]tag");
  for (const code of [0x00ad, 0x034f, 0x061c, 0x115f, 0x1160, 0x180b, 0x180e, 0x180f, 0x200b, 0x2028, 0x202e, 0x2060, 0x2800, 0x3164, 0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0xfffa, 0xe0001, 0xe0100, 0xe01ef]) {
    const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    assert.equal(plain(`a${String.fromCodePoint(code)}b`), `a[${name}]b`);
  }
  assert.equal(plain("⚠\ufe0f\ufe0f a\ufe0f ⚠\ufe0e"), "⚠\ufe0f[U+FE0F] a[U+FE0F] ⚠[U+FE0E]");
  assert.equal(plain("line\n\ttab é 天气 😀"), "line\n\ttab é 天气 😀");
});

test("a text is cut between characters", () => {
  assert.equal(shorten("abcdef", 3), "abc…");
  assert.equal(shorten("ab😀", 3), "ab…");
  assert.equal(shorten("abc", 3), "abc");
  assert.ok(isLong("x".repeat(401)) && isLong("\n".repeat(12)) && !isLong("x\n".repeat(5)));
});

test("a long text is shown whole, a huge one with its end and in steps", () => {
  assert.deepEqual(shownOf("x".repeat(20_000), 0), { head: 20_000, tail: 20_000 });
  const huge = "A".repeat(60_000) + " rm -rf /";
  assert.deepEqual(shownOf(huge, 0), { head: 2_000, tail: 58_009 });
  assert.deepEqual(shownOf(huge, 1), { head: 52_000, tail: 58_009 });
  assert.deepEqual(shownOf(huge, 2), { head: huge.length, tail: huge.length });
  const pairs = "😀".repeat(20_000) + "x";
  const { head, tail } = shownOf(`x${pairs}`, 0);
  // An unpaired surrogate cannot be part of an address.
  assert.ok(encodeURIComponent(`x${pairs}`.slice(0, head) + `x${pairs}`.slice(tail)));
});

test("events are read whatever the pieces in which they arrive", () => {
  const text = 'retry: 2000\n\n: ka\n\nid: 7\nevent: a.b\ndata: {"x":1}\ndata: 2\r\n\r\nevent: c\ndata:y\n\n';
  const expected = [{ id: "7", event: "a.b", data: '{"x":1}\n2' }, { id: null, event: "c", data: "y" }];
  for (const size of [1, 2, 3, 7, 1000]) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...parser.feed(text.slice(at, at + size)));
    assert.deepEqual(found, expected, `pieces of ${size}`);
  }
});

test("a difference names removed and added lines and leaves the rest", () => {
  const lines = diffLines("a\nb\nc\nd", "a\nx\nc\nd\ne").map(({ kind, text }) => `${kind[0]}${text}`);
  assert.deepEqual(lines, ["sa", "rb", "ax", "sc", "sd", "ae"]);
  assert.deepEqual(diffLines("same", "same"), [{ kind: "same", text: "same" }]);
  // A text without characters has no lines: nothing is removed from it.
  assert.deepEqual(diffLines("", "new"), [{ kind: "added", text: "new" }]);
  // Too large to compare line by line: shown as replaced, in time.
  const many = (text: string) => Array.from({ length: 5000 }, (_, index) => `${text}${index}`).join("\n");
  assert.equal(diffLines(many("a"), many("b")).length, 10_000);
});

test("a long line is known by where it begins to differ", () => {
  const lines = diffLines(`a\n${"x".repeat(5000)}1\nb\nsame`, `a\n${"x".repeat(5000)}2\nsame\nnew`);
  assert.deepEqual(lines.map(({ kind }, index) => `${kind[0]}${firstDifferences(lines)[index]}`), ["s0", "r5000", "r0", "a5000", "s0", "a0"]);
});

test("what was probably meant is found", () => {
  assert.deepEqual(closest("calcullator", ["clock", "calculator", "flaky"]), ["calculator"]);
  assert.deepEqual(closest("/tolls", ["/", "/tools", "/approvals"]), ["/tools"]);
  assert.deepEqual(closest("zzzzzz", ["clock", "calculator"]), []);
});

test("a search prefers the beginning of a name, then of a word, then the text", () => {
  const items = ["get_file", "file_get", "profile", "other"];
  assert.deepEqual(search("file", items, (name) => name, 9, (name) => (name === "other" ? "reads a file" : "")), ["file_get", "get_file", "profile", "other"]);
  assert.deepEqual(search("get file", items, (name) => name, 9), ["get_file", "file_get"]);
});

test("durations, counts and times left are short", () => {
  const durations: [number, string][] = [[0, "0 ms"], [0.057, "0.06 ms"], [2.958, "3 ms"], [812, "812 ms"], [4800, "4.8 s"], [60_000, "60 s"], [900_000, "15 min"], [14_400_000, "4 h"], [604_800_000, "7 d"]];
  for (const [ms, text] of durations) assert.equal(duration(ms), text);
  assert.deepEqual([0, 59_000, 60_001, 3_600_000, 174_600_000, -5].map(countdown), ["0:00", "0:59", "1:01", "1:00:00", "2 d 0:30:00", "0:00"]);
  assert.deepEqual([0, 7, 9999, 12_345, 2_500_000, 0.25, Number.NaN].map(number), ["0", "7", "9999", "12.3k", "2.5M", "0.25", "–"]);
  assert.deepEqual([percent(3, 7), percent(0, 0)], ["42.9 %", "–"]);
  assert.deepEqual([bytes(25), bytes(2048), bytes(1048576)], ["25 B", "2 KiB", "1 MiB"]);
});

test("a schema is described in a few words", () => {
  const schema = { properties: { sku: { type: "string", description: "Which" }, qty: { type: ["integer", "null"], minimum: 1, default: 2 }, tags: { type: "array", items: { enum: ["a", "b"] } } }, required: ["sku"] };
  const [sku, qty, tags] = schemaFields(schema);
  assert.deepEqual([sku?.required, sku?.description, qty?.type, qty?.limits, qty?.default, tags?.type], [true, "Which", "integer | null", ["minimum 1"], 2, '"a" | "b"[]']);
  assert.deepEqual([schemaType({ anyOf: [{ type: "string" }, { type: "null" }] }), schemaType(true), schemaFields(null)], ["string | null", "", []]);
});

test("axes have round values and round times of the chosen day", () => {
  assert.deepEqual(valueTicks(4.3, 4), [0, 2, 4]);
  assert.deepEqual(valueTicks(108, 4), [0, 50, 100]);
  assert.deepEqual(valueTicks(1, 4), [0, 0.5, 1]);
  const [hour, midnight] = [3_600_000, Date.UTC(2026, 0, 2)];
  // 14:20 where the reader is, and 24 hours before it.
  const end = midnight + 14 * hour + hour / 3;
  assert.deepEqual(timeTicks(end - 24 * hour, end, 5, end - midnight), [-6, 0, 6, 12].map((hours) => midnight + hours * hour));
});

test("a line has gaps where nothing is known, and a point where one value stands alone", () => {
  const values = [1, 2, null, 3, null];
  const [x, y] = [(index: number) => index * 10, (value: number) => value];
  assert.equal(linePath(values, x, y), "M0.0 1.0L10.0 2.0M30.0 3.0");
  assert.equal(pointsPath(values, x, y), "M30.0 3.0h0");
});

test("a stored time zone that no browser knows is left out", () => {
  assert.deepEqual(["Asia/Shanghai", "UTC", "Mars/Base", "", null].map(knownZone), ["Asia/Shanghai", "UTC", "", "", ""]);
});
