import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { answered } from "../src/data/approvals.ts";

const fetchBefore = globalThis.fetch;
afterEach(() => void (globalThis.fetch = fetchBefore));

test("answered approvals are found behind any number that wait, and older ones on demand", async () => {
  const all = Array.from({ length: 1_200 }, (_, at) => ({ id: `apr_${at}`, state: at < 700 ? "pending" : "denied" }));
  globalThis.fetch = ((url: string) => {
    const asked = new URL(url, "http://server").searchParams;
    const from = Number(asked.get("cursor") ?? 0);
    const to = from + Number(asked.get("limit"));
    return Promise.resolve(Response.json({ items: all.slice(from, to), nextCursor: to < all.length ? String(to) : null }));
  }) as typeof fetch;
  const list = answered();
  const count = () => list.data.peek()!.value.items.length;
  await list.read();
  assert.equal(list.data.peek()!.value.items[0]?.id, "apr_700");
  const before = count();
  assert.ok(before >= 100);
  await list.more(() => true);
  assert.ok(count() > before);
  for (let page = 0; page < 5; page++) await list.more(() => true);
  assert.equal(count(), 500);
});
