import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { close, gone, openAs, visible, withPage } from "./browser.ts";
import { TestServer, until } from "./server.ts";

const path = (id: string, kind = "business") => `/api/v1/state/contexts/${encodeURIComponent(id)}/${kind}`;
const address = (id: string) => `/ui/state/${encodeURIComponent(id)}`;

describe("state", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start()));
  after(() => server.stop());

  const put = (id: string, data: unknown, ttl?: string, kind?: string) => server.api("PUT", path(id, kind), { data, ...(ttl && { ttl }) });
  const dataOf = async (id: string, kind?: string) => (await server.api("GET", path(id, kind))).data;
  const field = (page: Page) => page.getByLabel("State as JSON").and(page.locator("textarea"));
  const edit = async (page: Page, text: string) => {
    await page.getByRole("button", { name: "Edit" }).click();
    await field(page).fill(text);
  };
  const save = (page: Page) => page.getByRole("button", { name: "Save" });

  test("contexts are found by a search, a thread and a tool, and opened with the keyboard", async () => {
    await put("shop/cart", { tea: 1 });
    await put("shop/wishes", { cup: 1 });
    await put("~/rates", { eur: 1 });
    await withPage(server, "/ui/state", async ({ page }) => {
      const rows = page.locator(".context-list [role=rowgroup]:not(.long-head) [role=row]");
      await until("three contexts", async () => (await rows.count()) === 3);
      await page.getByRole("searchbox").fill("cart");
      await until("one context", async () => (await rows.count()) === 1);
      await page.getByRole("searchbox").fill("");
      await page.locator("input[name=thread]").fill("shop");
      await page.keyboard.press("Enter");
      await until("two contexts", async () => (await rows.count()) === 2);
      await page.locator("input[name=tool]").fill("wishes");
      await page.keyboard.press("Enter");
      await until("one context", async () => (await rows.count()) === 1);
      await page.locator("h1").click();
      await page.keyboard.press("j");
      await page.keyboard.press("Enter");
      await visible(page.locator("h1", { hasText: "shop/wishes" }));
    });
  });

  test("a write from a second tab shows base, theirs and mine, and both changes are saved", async () => {
    await put("t1/cart", { tea: 1, sugar: "brown", big: 1 }, "7d");
    await withPage(server, address("t1/cart"), async ({ page: first, context }) => {
      await edit(first, '{"tea": 2, "sugar": "brown", "big": 9007199254740993}');
      const second = await context.newPage();
      second.setDefaultTimeout(5_000);
      await second.goto(server.url + address("t1/cart"));
      await edit(second, '{"tea": 1, "sugar": "white", "big": 1}');
      await save(second).click();
      await visible(second.getByText("Saved"));
      await gone(field(second));
      await second.close();
      await visible(first.getByText("Somebody changed this state meanwhile."));
      assert.ok(await save(first).isDisabled());
      const part = (name: string) => first.locator(".three > div", { has: first.getByRole("heading", { name, exact: true }) });
      await visible(part("Base").getByText('"sugar": "brown"'));
      await visible(part("Theirs").locator(".added", { hasText: '"sugar": "white"' }));
      await visible(part("Mine").locator(".added", { hasText: '"tea": 2' }));
      await first.getByRole("button", { name: "Mine on top of theirs" }).click();
      const merged = JSON.parse(await field(first).inputValue());
      assert.deepEqual([merged.tea, merged.sugar], [2, "white"]);
      // What was merged can be edited, and the text before is not lost.
      await first.getByRole("button", { name: "Back to mine" }).click();
      assert.match(await field(first).inputValue(), /^\{"tea": 2, "sugar": "brown"/);
      await field(first).fill('{"tea": 2, "sugar": "white", "big": 9007199254740993}');
      await save(first).click();
      await gone(field(first));
    });
    const response = await (await fetch(server.url + path("t1/cart"))).text();
    assert.match(response, /"data":\{"big":9007199254740993,"sugar":"white","tea":2\}/);
    // The time to live stayed.
    const left = Date.parse(JSON.parse(response).expiresAt) - Date.now();
    assert.ok(Math.abs(left - 7 * 86_400_000) < 60_000, String(left));
  });

  test("theirs is taken, values that both changed are named, and a deleted state is created again", async () => {
    await put("t2/cart", { tea: 1 });
    await withPage(server, address("t2/cart"), async ({ page }) => {
      await edit(page, '{"tea": 2}');
      await put("t2/cart", { tea: 3 });
      await visible(page.locator(".conflict code", { hasText: "/tea" }));
      await page.getByRole("button", { name: "Take theirs" }).click();
      assert.equal(JSON.parse(await field(page).inputValue()).tea, 3);
      await field(page).fill('{"tea": 4}');
      await server.api("DELETE", path("t2/cart"));
      await visible(page.getByText("Somebody deleted this state meanwhile"));
      assert.equal(await field(page).inputValue(), '{"tea": 4}');
      await page.getByRole("button", { name: "Create it again" }).click();
      await save(page).click();
      await gone(field(page));
    });
    assert.deepEqual(await dataOf("t2/cart"), { tea: 4 });
  });

  test("a save keeps the end that the state has now, and asks for one when its time is over", async () => {
    await put("t8/cart", { tea: 1 }, "7d");
    let left = 3_600_000;
    await withPage(server, address("t8/cart"), async ({ page }) => {
      await edit(page, '{"tea": 2}');
      await page.route(`**${path("t8/cart")}`, async (route) => {
        if (route.request().method() !== "GET") return route.continue();
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...(await response.json()), expiresAt: new Date(Date.now() + left).toISOString() } });
      });
      left = -5_000;
      await visible(page.getByText("The time to live is over."));
      assert.ok(await save(page).isDisabled());
      left = 3_600_000;
      await gone(page.getByText("The time to live is over."));
      await save(page).click();
      await gone(field(page));
    });
    const { data, expiresAt } = await server.api("GET", path("t8/cart"));
    assert.deepEqual(data, { tea: 2 });
    assert.ok(Math.abs(Date.parse(expiresAt) - Date.now() - 3_600_000) < 60_000, expiresAt);
  });

  test("bad JSON is wrong at its place, what the server refuses stays, and a time to live is set", async () => {
    await put("t3/cart", { tea: 1 }, "1h", "cache");
    await withPage(server, address("t3/cart"), async ({ page }) => {
      await edit(page, '{\n  "tea": 2,\n  "sugar": brown\n}');
      const wrong = page.getByRole("button", { name: "Line 3, column 12" });
      await visible(wrong);
      assert.ok(await save(page).isDisabled());
      await wrong.click();
      assert.equal(await page.evaluate(() => (document.activeElement as HTMLTextAreaElement).selectionStart), 25);
      await field(page).fill("[1]");
      await visible(page.getByText("This is not a JSON object."));
      await field(page).fill('{"tea": 5}');
      await page.getByLabel("Time to live").fill("soon");
      await save(page).click();
      await visible(page.getByRole("alert").filter({ hasText: "soon" }));
      assert.equal(await field(page).inputValue(), '{"tea": 5}');
      await page.getByLabel("Time to live").fill("2h");
      await save(page).click();
      await gone(field(page));
    });
    const { data, expiresAt } = await server.api("GET", path("t3/cart", "cache"));
    assert.deepEqual(data, { tea: 5 });
    assert.ok(Math.abs(Date.parse(expiresAt) - Date.now() - 7_200_000) < 60_000);
  });

  test("a version is compared and rolled back after a question, and the history tells it", async () => {
    await put("t4/cart", { tea: 1 });
    await put("t4/cart", { tea: 2 });
    await withPage(server, address("t4/cart"), async ({ page }) => {
      const old = page.locator(".past li", { hasText: "Roll back" });
      await old.getByRole("button", { name: "Difference" }).click();
      await visible(old.locator(".added", { hasText: '"tea": 2' }));
      await old.getByRole("button", { name: "Roll back…" }).click();
      const dialog = page.getByRole("dialog", { name: "Roll back to version 1?" });
      await visible(dialog.locator(".added", { hasText: '"tea": 1' }));
      await dialog.getByRole("button", { name: "Roll back", exact: true }).click();
      await visible(page.locator(".past li", { hasText: '3 {"tea":1}' }));
      await visible(page.locator(".block", { hasText: '"tea": 1' }));
    });
    assert.deepEqual(await dataOf("t4/cart"), { tea: 1 });
  });

  test("a call that writes nothing appears in the history of an open page", async () => {
    await server.call("notes", { add: "milk" }, "t7");
    await withPage(server, address("t7/notes"), async ({ page }) => {
      const ended = page.getByRole("list", { name: "History" }).getByText("call succeeded");
      await until("the first call", async () => (await ended.count()) === 1);
      await server.call("notes", {}, "t7");
      await until("the second call", async () => (await ended.count()) === 2);
      assert.equal((await server.api("GET", path("t7/notes"))).version, 1);
    });
  });

  test("what was typed outlives a lost connection", async () => {
    await put("t5/cart", { tea: 1 });
    await withPage(server, address("t5/cart"), async ({ page }) => {
      await edit(page, '{"tea": 7}');
      await server.kill();
      await save(page).click();
      await visible(page.getByText("The server did not answer."));
      assert.equal(await field(page).inputValue(), '{"tea": 7}');
      await server.run();
      await gone(page.locator("[data-bar=lost]"));
      await save(page).click();
      await gone(field(page));
    });
    assert.deepEqual(await dataOf("t5/cart"), { tea: 7 });
  });

  test("an unknown context says so, with the closest names and the way back", async () => {
    await put("t6/basket", { tea: 1 });
    await withPage(server, address("t6/baskets"), async ({ page }) => {
      await visible(page.getByText("State not found"));
      await page.getByRole("link", { name: "t6/basket", exact: true }).click();
      await visible(page.locator(".block", { hasText: '"tea": 1' }));
      await page.goto(server.url + address("no thread/x"));
      await visible(page.getByText("is not a valid thread id"));
      await page.getByRole("link", { name: "Back to State" }).click();
      await visible(page.locator(".context-list"));
    });
  });

  test("a key without state:write sees no edit, one without state:read no state", async () => {
    const locked = await TestServer.start({ keys: true });
    try {
      await locked.api("PUT", path("t1/cart"), { data: { tea: 1 } });
      await locked.api("PUT", path("t1/cart"), { data: { tea: 2 } });
      const reader = await openAs(locked, (await locked.key("reader", ["tools:read", "state:read"])).key, address("t1/cart"));
      await visible(reader.page.getByRole("button", { name: "Difference" }));
      assert.equal(await reader.page.getByRole("button", { name: /Edit|Roll back/ }).count(), 0);
      await close(reader);
      const other = await openAs(locked, (await locked.key("other", ["tools:read"])).key, address("t1/cart"));
      await visible(other.page.getByRole("status").filter({ hasText: "state:read" }));
      assert.equal(await other.page.locator(".main-nav").getByText("State").count(), 0);
      await close(other);
    } finally {
      await locked.stop();
    }
  });
});
