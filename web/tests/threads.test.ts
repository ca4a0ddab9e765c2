import assert from "node:assert/strict";
import { test } from "node:test";
import type { Call, Run } from "../src/api/types.ts";
import { stepsOf, timelineLength } from "../src/data/run-steps.ts";
import { runs } from "../src/data/facts.ts";
import { newestRuns } from "../src/data/runs.ts";
import { fitsPatterns, threadOf } from "../src/data/threads.ts";

const at = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms).toISOString();

const run = (change: Partial<Run>): Run => ({
  id: "run_1", threadId: "t", agent: "default", status: "completed", steps: 2, usage: { inputTokens: 1, outputTokens: 1 }, startedAt: at(0), endedAt: at(100), content: "",
  calls: [{ id: "call_1", tool: "slow", status: "success" }, { id: "call_2", tool: "gone", status: "success" }],
  timeline: [
    { model: "m", startedAt: at(5), repliedAt: at(20), usage: { inputTokens: 1, outputTokens: 1 }, calls: ["call_1", "call_2"], callsEndedAt: at(80) },
    { model: "m", startedAt: at(82), repliedAt: at(100), usage: { inputTokens: 1, outputTokens: 1 }, calls: [] },
  ],
  ...change,
});

const record = (change: Partial<Call>): Call => ({ id: "call_1", tool: "slow", threadId: "t", status: "success", approval: null, startedAt: at(22), queuedMs: 30, durationMs: 20, endedAt: at(72), ...change });

test("the steps of a run have their calls below them, with waiting and working; a call without a record has the times of its step", () => {
  const { steps, totalMs } = stepsOf(run({}), new Map([["call_1", record({})]]), 0);
  assert.equal(totalMs, 100);
  assert.deepEqual(
    steps.map(({ key, from, began, to }) => [key, from, began, to]),
    [["model-0", 5, 5, 20], ["call_1", 22, 52, 72], ["call_2", 20, 20, 80], ["model-1", 82, 82, 100]],
  );
});

test("what goes on ends now, and a call that waits for an approval only waits", () => {
  const open = run({ status: "waiting", endedAt: null, calls: [{ id: "call_1", tool: "slow", status: "awaiting_approval" }], timeline: [{ model: "m", startedAt: at(5), repliedAt: at(20), usage: { inputTokens: 1, outputTokens: 1 }, calls: ["call_1"] }] });
  const waiting = record({ status: "awaiting_approval", queuedMs: null, durationMs: null, endedAt: null });
  const { steps, totalMs } = stepsOf(open, new Map([["call_1", waiting]]), Date.parse(at(500)));
  assert.equal(totalMs, 500);
  assert.deepEqual(steps.map(({ key, from, began, to }) => [key, from, began, to]), [["model-0", 5, 5, 20], ["call_1", 22, 500, 500]]);
});

test("the timeline of a call is as long as its last step, or goes on until now", () => {
  const timeline: Call["timeline"] = [{ stage: "validating", startMs: 0, endMs: 1 }, { stage: "attempt", attempt: 1, startMs: 1, endMs: 40 }];
  assert.equal(timelineLength(record({ timeline }), 0), 40);
  assert.equal(timelineLength(record({ timeline, endedAt: null }), Date.parse(at(1022))), 1000);
});

test("the server selects runs by their status, also those that failed, so that any number of others may be newer", async (context) => {
  const paths: string[] = [];
  context.mock.method(globalThis, "fetch", (url: string) => (paths.push(url), Promise.resolve(Response.json({ items: [run({ status: "failed" })] }))));
  const list = newestRuns("", "open");
  await list.read();
  await newestRuns("t 1", "failed").read();
  await newestRuns("", "").read();
  await runs.read();
  assert.deepEqual(paths, ["/api/v1/runs?status=open&limit=100", "/api/v1/threads/t%201/runs?status=failed&limit=100", "/api/v1/runs?limit=100", "/api/v1/runs?status=failed&limit=100"]);
  assert.equal(runs.data.peek()?.value.length, 1);
});

test("tools of an agent are names and globs; without any it has all tools", () => {
  assert.ok(fitsPatterns("x", null));
  assert.ok(fitsPatterns("web.read", ["web.*"]));
  assert.ok(!fitsPatterns("webXread", ["web.*"]));
  assert.ok(!fitsPatterns("web", []));
});

test("direct calls of a thread are found behind the calls of its runs, and it is said when older ones were not read", async (context) => {
  const made = (length: number, direct: number) => Array.from({ length }, (_, at) => ({ id: `call_${at}`, runId: at === direct ? null : "run_1", status: "success", startedAt: String(at) }));
  let all = made(400, 350);
  let requests = 0;
  context.mock.method(globalThis, "fetch", (url: string) => {
    const { pathname, searchParams: asked } = new URL(url, "http://server");
    const from = Number(asked.get("cursor") ?? 0);
    const to = from + Number(asked.get("limit"));
    requests++;
    const items = pathname === "/api/v1/calls" ? all.slice(from, to) : [];
    return Promise.resolve(Response.json({ items, nextCursor: items.length > 0 && to < all.length ? String(to) : null }));
  });
  const found = async (thread: ReturnType<typeof threadOf>) => {
    requests = 0;
    await thread.read();
    const { calls, hasOlderCalls } = thread.data.peek()!.value;
    return { ids: calls.map(({ id }) => id), hasOlderCalls, pages: requests - 2 };
  };
  const thread = threadOf("t");
  assert.deepEqual(await found(thread), { ids: ["call_350"], hasOlderCalls: false, pages: 2 });
  all = [{ id: "new", runId: null, status: "success", startedAt: "9" }, ...all];
  assert.deepEqual(await found(thread), { ids: ["call_350", "new"], hasOlderCalls: false, pages: 1 });
  all = made(3_000, -1);
  assert.deepEqual(await found(threadOf("t")), { ids: [], hasOlderCalls: true, pages: 5 });
});
