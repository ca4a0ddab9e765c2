import assert from "node:assert/strict";
import { test } from "node:test";
import { info } from "../src/data/facts.ts";
import { pendingRestart } from "../src/data/restarts.ts";

test("what waits for a restart is what the server says, also to a browser that saw no reload", async (context) => {
  let answer: object = { restartPending: ["server", "store"] };
  context.mock.method(globalThis, "fetch", () => Promise.resolve(Response.json(answer)));
  await info.read();
  assert.deepEqual(pendingRestart.value, ["server", "store"]);
  answer = {};
  await info.read();
  assert.deepEqual(pendingRestart.value, []);
});
