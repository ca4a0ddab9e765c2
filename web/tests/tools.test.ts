import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import type { Tool, ToolStatus } from "../src/api/types.ts";
import { resetTool, tools } from "../src/data/tools.ts";

const tool = (name: string, status: ToolStatus) => ({ name, status }) as Tool;
const statuses = () => tools.data.peek()!.value.map(({ name, status }) => `${name} ${status}`);

/** Requests that wait for their answer, in the order in which they were made. */
let waiting: { path: string; answer: (value: unknown) => void }[] = [];
const fetchBefore = globalThis.fetch;

beforeEach(() => {
  waiting = [];
  globalThis.fetch = ((url: string) => new Promise((done) => waiting.push({ path: url.split("?")[0]!, answer: (value) => done(Response.json(value)) }))) as typeof fetch;
});
afterEach(() => void (globalThis.fetch = fetchBefore));

const asked = async (path: string) => {
  for (;;) {
    const at = waiting.findIndex((one) => one.path === path);
    if (at >= 0) return waiting.splice(at, 1)[0]!.answer;
    await new Promise((next) => setImmediate(next));
  }
};
/** What follows from the answers so far has happened. */
const settled = async () => {
  for (let turn = 0; turn < 20; turn++) await new Promise((next) => setImmediate(next));
};
const [list, one, reset] = ["/api/v1/tools", "/api/v1/tools/a", "/api/v1/tools/a/reset"];

const readList = async (...items: Tool[]) => {
  const reading = tools.read();
  (await asked(list))({ items });
  await reading;
};

test("a status that was read while the list was under way is not overwritten by the older answer of the list", async () => {
  await readList(tool("a", "failed"), tool("b", "available"));
  const reading = tools.read();
  const answerList = await asked(list);
  const change = resetTool("a");
  (await asked(reset))({ toolName: "a" });
  await change;
  (await asked(one))(tool("a", "available"));
  await settled();
  assert.deepEqual(statuses(), ["a available", "b available"]);
  answerList({ items: [tool("a", "failed"), tool("b", "failed")] });
  await reading;
  assert.deepEqual(statuses(), ["a available", "b failed"]);
  await readList(tool("a", "maintenance"), tool("b", "failed"));
  assert.deepEqual(statuses(), ["a maintenance", "b failed"]);
});

test("the older of two answers about a tool, and one from before the list was read, change nothing", async () => {
  await readList(tool("a", "failed"));
  const first = resetTool("a");
  (await asked(reset))({ toolName: "a" });
  await first;
  const answerFirst = await asked(one);
  const second = resetTool("a");
  (await asked(reset))({ toolName: "a" });
  await second;
  (await asked(one))(tool("a", "maintenance"));
  await settled();
  answerFirst(tool("a", "available"));
  await settled();
  assert.deepEqual(statuses(), ["a maintenance"]);
  const third = resetTool("a");
  (await asked(reset))({ toolName: "a" });
  await third;
  const answerThird = await asked(one);
  await readList(tool("a", "unavailable"));
  answerThird(tool("a", "failed"));
  await settled();
  assert.deepEqual(statuses(), ["a unavailable"]);
});
