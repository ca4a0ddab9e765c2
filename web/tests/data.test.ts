import assert from "node:assert/strict";
import { test } from "node:test";
import type { Call, CallSeries, Key, Run, Tool } from "../src/api/types.ts";
import { withQuery } from "../src/api/client.ts";
import { expiringKeys, failedRuns, keyCommand, readDropped } from "../src/data/facts.ts";
import { PagedResource } from "../src/data/paged.ts";
import { countNew, filterQuery, readCallFilter, reportsCalls } from "../src/data/calls.ts";
import { linesOf } from "../src/data/series.ts";
import { readTick } from "../src/data/ticks.ts";
import { applyFilter, nextSort, readFilter } from "../src/pages/tools/filter.ts";
import { parseRoute } from "../src/ui/router.ts";
import { sparkPath } from "../src/base/line-path.ts";
import { windowOf } from "../src/ui/window.ts";

const tool = (name: string, status: Tool["status"], calls = 0, errors = 0): Tool =>
  ({ name, status, kind: "rest", description: `About ${name}`, metadata: {}, stats: { calls, errors, inFlight: 0, queued: 0, p95Ms: calls } }) as unknown as Tool;

test("tools are filtered and sorted as the address says", () => {
  const all = [tool("b", "available", 10, 1), tool("a", "failed", 2, 2), tool("c", "maintenance")];
  const names = (query: string) => applyFilter(all, readFilter(new URLSearchParams(query))).map(({ name }) => name);
  assert.deepEqual(names(""), ["a", "b", "c"]);
  assert.deepEqual(names("sort=-name"), ["c", "b", "a"]);
  assert.deepEqual(names("sort=-calls"), ["b", "a", "c"]);
  assert.deepEqual(names("sort=-errors"), ["a", "b", "c"]);
  assert.deepEqual(names("sort=status"), ["a", "c", "b"]);
  assert.deepEqual(names("status=withheld"), ["a", "c"]);
  assert.deepEqual(names("q=about+c"), ["c"]);
  assert.deepEqual(names("sort=nonsense&kind=mcp"), []);
  assert.equal(nextSort(readFilter(new URLSearchParams("")), "calls"), "-calls");
  assert.equal(nextSort(readFilter(new URLSearchParams("sort=-calls")), "calls"), "calls");
  assert.equal(nextSort(readFilter(new URLSearchParams("")), "name"), "-name");
});

test("addresses name pages, and others name none", () => {
  const seen = (path: string) => {
    const { page, param } = parseRoute(path, "");
    return `${page} ${param}`.trim();
  };
  assert.deepEqual(["/ui", "/ui/", "/ui/tools", "/ui/tools/", "/ui/tools/a%2Fb", "/ui/approvals/apr_1", "/ui/nope", "/ui/tools/a/b", "/ui/tools/%E0%A4%A", "/ui/calls", "/ui/calls/call_1"].map(seen), [
    "overview", "overview", "tools", "tools", "tool a/b", "approval apr_1", "unknown", "unknown", "tool %E0%A4%A", "calls", "call call_1",
  ]);
});

test("only the rows in view are in the document", () => {
  assert.deepEqual(windowOf(10_000, 36, 36_000, 720), { from: 992, to: 1028, before: 992 * 36, after: (10_000 - 1028) * 36 });
  assert.deepEqual(windowOf(3, 36, 0, 720), { from: 0, to: 3, before: 0, after: 0 });
  // The list became shorter than what was scrolled.
  assert.deepEqual(windowOf(5, 36, 36_000, 720), { from: 5, to: 5, before: 180, after: 0 });
});

test("older rows of a list are read again too; those behind the most that are read say since when they are as they are", async () => {
  let all = Array.from({ length: 2_500 }, (_, index) => ({ id: String(10_000 - index) }));
  let requests = 0;
  const list = new PagedResource(
    async (limit, cursor) => {
      requests++;
      const from = cursor ? all.findIndex(({ id }) => id === cursor) + 1 : 0;
      const items = all.slice(from, from + limit);
      return { items, nextCursor: from + limit < all.length ? items.at(-1)!.id : null };
    },
    {},
  );
  const ids = () => list.data.peek()!.value.items.map(({ id }) => id);
  const any = () => true;
  await list.read();
  await list.more(any);
  assert.equal(ids().length, 200);
  // One is deleted and new ones come.
  all = [{ id: "n1" }, { id: "n2" }, ...all.filter(({ id }) => id !== "9990")];
  await list.read();
  assert.deepEqual(ids(), all.slice(0, 200).map(({ id }) => id));
  for (let page = 0; page < 20; page++) await list.more(any);
  assert.equal(ids().length, 2_200);
  assert.equal(list.data.peek()!.value.live, 2_000);
  assert.ok(list.data.peek()!.value.restAt);
  requests = 0;
  all = [{ id: "n0" }, ...all];
  await list.read();
  assert.equal(requests, 4);
  assert.deepEqual(ids(), all.slice(0, 2_201).map(({ id }) => id), "what a new row pushed back is not lost");
});

test("a line has gaps where nothing was counted", () => {
  assert.equal(sparkPath([0, 1, null, 1], 4, 30, 10), "M0.0 9.0L10.0 1.0M30.0 1.0");
});

test("dropped records are summed over labels", () => {
  const metrics = 'toolhub_journal_dropped_total{of="a"} 2\ntoolhub_journal_dropped_total{of="b"} 3\ntoolhub_store_lost_commits_total 4\n# HELP toolhub_journal_dropped_total x\n';
  assert.deepEqual(readDropped(metrics), { records: 5, lostCommits: 4 });
});

test("failed runs of a day and keys that expire within a week want attention", () => {
  const now = Date.parse("2026-01-10T00:00:00Z");
  const run = (status: Run["status"], startedAt: string) => ({ id: startedAt, status, startedAt }) as Run;
  assert.equal(failedRuns([run("failed", "2026-01-09T12:00:00Z"), run("failed", "2026-01-01T00:00:00Z"), run("completed", "2026-01-09T12:00:00Z")], now).length, 1);
  const key = (expiresAt: string | null) => ({ expiresAt }) as Key;
  assert.equal(expiringKeys([key("2026-01-12T00:00:00Z"), key("2026-03-01T00:00:00Z"), key("2026-01-09T00:00:00Z"), key(null)], now).length, 1);
});

test("the command for a key that expires makes one that may do the same", () => {
  const key = (scopes: Key["scopes"], tenant: string) => keyCommand({ scopes, tenant });
  assert.equal(key(["tools:read", "approvals:write"], "acme"), "toolhub keys create NAME --scope tools:read --scope approvals:write --tenant acme");
  assert.equal(key(["admin"], "default"), "toolhub keys create NAME --scope admin");
});

test("a report of a second is read whatever it lacks", () => {
  const tick = readTick({ event: "metrics.tick", timestamp: "", calls: { success: 3, cancelled: 1, timeout: 2 }, inFlight: 4, p95MinuteMs: 7 });
  assert.deepEqual(tick, { calls: 6, errors: 2, p95Ms: 7, inFlight: 4, queued: 0 });
  assert.deepEqual(readTick({ event: "metrics.tick", timestamp: "" }), { calls: 0, errors: 0, p95Ms: null, inFlight: 0, queued: 0 });
});

test("a series fills its window: gaps of a node, zeros of a tool, and the mean of the last step so far", () => {
  const now = Date.parse("2026-01-10T12:00:30.500Z");
  const minute = Date.parse("2026-01-10T12:00:00Z");
  const series = {
    window: "6h", stepMs: 10_000, now: new Date(now).toISOString(),
    at: [minute - 130_000, minute - 30_000, minute - 20_000, minute + 20_000],
    succeeded: [20, 5, 10, 9], failed: [0, 1, 0, 0], inFlight: [1, 4, 3, 0], p95Ms: [3, null, 4, 5],
  } as unknown as CallSeries;
  const node = linesOf(series, false, 1_000);
  assert.equal(node.at.length, 360);
  assert.equal(node.at.at(-1), minute);
  assert.deepEqual(node.of("succeeded").slice(-4), [2, null, 0.75, 0.9]);
  assert.deepEqual(node.of("inFlight").slice(-2), [4, 0]);
  assert.deepEqual(node.of("p95Ms").slice(-3), [null, 4, 5]);
  // A point whose time is not over does not count yet.
  assert.deepEqual(linesOf({ ...series, now: new Date(minute + 25_000).toISOString() }, false, 1_000).of("succeeded").slice(-2), [0.75, null]);
  const tool = linesOf(series, true, 60_000);
  assert.deepEqual(tool.of("succeeded").slice(-4), [20, 0, 15, 9]);
  assert.deepEqual(tool.of("p95Ms").slice(-4), [3, null, 4, 5]);
});

test("calls that came after a pause are counted, also when none of those shown is left", () => {
  const calls = (...ids: string[]) => ids.map((id) => ({ id }) as Call);
  assert.equal(countNew(calls("c", "b", "a"), calls("e", "d", "c", "b")), 2);
  assert.equal(countNew(calls("c", "b"), calls("c", "b")), 0);
  assert.equal(countNew(calls("b", "a"), calls("e", "d", "c")), 3);
  assert.equal(countNew([], calls("a")), 1);
});

test("the filter of calls is what the address says, and only a second with calls is a reason to read them again", () => {
  const filter = readCallFilter(new URLSearchParams("tool=weather&since=1h&view=refusals&thread=%20t1%20"));
  assert.deepEqual([filter.tool, filter.since, filter.thread, filter.code], ["weather", "1h", "t1", ""]);
  assert.equal(filterQuery(filter), "tool=weather&thread=t1&since=1h");
  const tick = (members: object) => reportsCalls({ event: "metrics.tick", timestamp: "", ...members });
  assert.deepEqual([tick({ calls: {} }), tick({ calls: { success: 1 } }), tick({ refusals: { forbidden: 1 } }), tick({ inFlight: 2 })], [false, true, true, true]);
});

test("a path keeps its own parameters", () => {
  assert.equal(withQuery("/a?state=pending", { limit: 5, cursor: "", tool: null }), "/a?state=pending&limit=5");
});
