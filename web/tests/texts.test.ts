import assert from "node:assert/strict";
import { test } from "node:test";
import { en } from "../src/i18n/en.ts";
import { pseudo } from "../src/i18n/pseudo.ts";
import { zh } from "../src/i18n/zh.ts";

/** Every text with the path to it; functions are called with samples. */
function all(messages: object, path = ""): [string, string][] {
  return Object.entries(messages).flatMap(([name, value]): [string, string][] => {
    const at = `${path}.${name}`;
    if (typeof value === "string") return [[at, value]];
    if (typeof value === "function") return [[at, String((value as (...parameters: unknown[]) => unknown)(2, 3, 4))]];
    return all(value as object, at);
  });
}

test("every text is there in both languages, and Chinese ones are Chinese", () => {
  const english = new Map(all(en));
  const chinese = all(zh);
  assert.deepEqual(chinese.map(([at]) => at).sort(), [...english.keys()].sort());
  const same = chinese.filter(([at, text]) => !/[\p{Script=Han}（）]/u.test(text) && text !== english.get(at)).map(([at]) => at);
  assert.deepEqual(same, []);
  assert.deepEqual(all(en).filter(([, text]) => text.trim() === ""), []);
  // A comma between Chinese characters is a full-width one.
  assert.deepEqual(chinese.filter(([, text]) => /\p{Script=Han}[,;:?!]/u.test(text)), []);
});

test("the language for tests marks every text", () => {
  assert.deepEqual(all(pseudo(en)).filter(([, text]) => !/^⟦[^]*⟧$/.test(text)), []);
});
