import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { close, gone, logIn, open, openAs, visible, type Watched } from "./browser.ts";
import { TestServer } from "./server.ts";

describe("keys", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ keys: true })));
  after(() => server.stop());

  /** Makes a key from a preset in the page, and logs in with it in another browser. */
  const withPreset = async (page: Page, preset: string, name: string): Promise<Watched> => {
    await page.getByRole("button", { name: "New key" }).click();
    await page.getByLabel(preset, { exact: true }).check();
    // Letter by letter, as a person types it: a space is at the end for a moment.
    await page.getByLabel("Name of the person").pressSequentially(name);
    await page.getByRole("button", { name: "Create" }).click();
    const shown = page.locator(".callout", { hasText: `${name} was created. Copy it now` });
    const key = await shown.locator(".command code").innerText();
    await visible(page.locator(".key-list .long-row", { hasText: name }));
    const opened = await open(server, "/ui/");
    await logIn(opened.page, key);
    return opened;
  };

  test("a wrong key is refused with a sentence, a right one goes on where it began, and a logout ends it", async () => {
    const opened = await open(server, "/ui/tools/calculator");
    const { page } = opened;
    await page.getByLabel("API key").fill("thk_wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await visible(page.getByText("This key is not valid."));
    await logIn(page, server.adminKey);
    await visible(page.locator("h1", { hasText: "calculator" }));
    const cookies = await opened.context.cookies();
    assert.ok(cookies.length === 1 && cookies[0]!.httpOnly && cookies[0]!.sameSite === "Strict");
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("thk_")), false);
    await page.reload();
    await visible(page.locator("h1", { hasText: "calculator" }));
    await page.getByRole("button", { name: "Log out" }).click();
    await visible(page.getByLabel("API key"));
    await close(opened);
  });

  test("a login that was not used for too long ends, and the page goes on after another", async () => {
    const own = await TestServer.start({ keys: true });
    const opened = await openAs(own, own.adminKey, "/ui/tools/clock");
    const { page } = opened;
    await visible(page.locator("h1", { hasText: "clock" }));
    await own.kill();
    await visible(page.locator("[data-bar=lost]"));
    // After twelve hours without a request the row of the login expires; a server that starts then has none.
    const store = new DatabaseSync(`${own.folder}/toolhub.db`);
    assert.equal(store.prepare("DELETE FROM rows WHERE id LIKE 'login:%'").run().changes, 1);
    store.close();
    await own.run();
    await visible(page.getByText("Your login has ended."));
    await logIn(page, own.adminKey);
    await visible(page.locator("h1", { hasText: "clock" }));
    await close(opened);
    await own.stop();
  });

  test("after a session has ended, another person who logs in sees nothing of the one before; the same person keeps what was typed", async () => {
    const first = await server.key("first", ["tools:read", "approvals:write"]);
    const id = await server.ask("dangerous", { folder: "/tmp/a" }, "handed-over");
    const opened = await openAs(server, first.key, `/ui/approvals/${id}`);
    const { page, context } = opened;
    const reason = page.getByLabel("Reason, for the model");
    const type = async () => {
      await page.getByRole("button", { name: "Deny…" }).click();
      await reason.fill("typed by the first");
      // A load of the page forgets it.
      await page.evaluate(() => ((globalThis as { isFirstLoad?: boolean }).isFirstLoad = true));
    };
    const isFirstLoad = () => page.evaluate(() => (globalThis as { isFirstLoad?: boolean }).isFirstLoad === true);
    const end = async () => {
      await context.clearCookies();
      await page.getByRole("link", { name: "Tools", exact: true }).click();
      await visible(page.getByText("Your login has ended."));
      await page.evaluate((path) => (history.pushState(null, "", path), dispatchEvent(new PopStateEvent("popstate"))), `/ui/approvals/${id}`);
    };
    await visible(page.getByRole("button", { name: "Deny…" }));
    await type();
    await end();
    await logIn(page, first.key);
    assert.equal(await reason.inputValue(), "typed by the first");
    assert.ok(await isFirstLoad());
    await server.api("DELETE", `/api/v1/keys/${first.id}`);
    await page.getByText("Your login has ended.").waitFor({ timeout: 15_000 });
    const second = await server.key("second", ["tools:read"]);
    await logIn(page, second.key);
    await visible(page.locator(".account", { hasText: "second" }));
    await visible(page.locator(".arguments"));
    assert.equal(await isFirstLoad(), false);
    assert.equal(await page.getByText("typed by the first").count(), 0);
    assert.equal(await reason.count(), 0);
    await server.api("POST", `/api/v1/approvals/${id}`, { outcome: "cancel" });
    await close(opened);
  });

  test("a viewer, an approver and an operator see exactly what they may do, and a revoked key ends its page", async () => {
    await server.api("PUT", "/api/v1/state/contexts/t1%2Fcart/business", { data: { tea: 1 } });
    await server.api("PUT", "/api/v1/tools/notes/status", { status: "maintenance" });
    const approval = await server.ask("dangerous", { folder: "/tmp/a" }, "t1");
    const seen = async ({ page }: Watched) => {
      await visible(page.locator(".line", { hasText: "notes" }));
      await visible(page.locator(".line", { hasText: "dangerous" }));
      const resets = await page.getByRole("button", { name: "Reset" }).count();
      const decides = await page.getByRole("link", { name: "Decide" }).count();
      const state = await page.locator(".main-nav").getByText("State").count();
      await page.goto(`${server.url}/ui/approvals/${approval}`);
      await visible(page.locator(".arguments"));
      const answers = await page.locator(".answers button").count();
      await page.goto(`${server.url}/ui/tools/notes`);
      await visible(page.getByText("Not offered to models"));
      const actions = await page.locator(".actions button").count();
      await page.goto(`${server.url}/ui/state/t1%2Fcart`);
      await visible(page.locator("main :is(.block, .callout)"));
      const edits = await page.getByRole("button", { name: "Edit" }).count();
      // A part that the key may not see says which scope it lacks, and no link leads to others.
      await page.goto(`${server.url}/ui/settings?view=audit`);
      await visible(page.getByRole("status").filter({ hasText: "admin" }));
      const parts = await page.locator(".tabs a").allInnerTexts();
      return { resets, decides, state, answers, actions, edits, parts };
    };
    const parts = ["Audit", "About"];
    const boss = await openAs(server, server.adminKey, "/ui/settings?view=keys");
    const { page } = boss;
    const viewer = await withPreset(page, "Viewer", "vera");
    assert.deepEqual(await seen(viewer), { resets: 0, decides: 0, state: 1, answers: 0, actions: 0, edits: 0, parts });
    const approver = await withPreset(page, "Approver", "anna maria");
    assert.deepEqual(await seen(approver), { resets: 0, decides: 1, state: 0, answers: 5, actions: 0, edits: 0, parts });
    await close(approver);
    const operator = await withPreset(page, "Operator", "olga");
    assert.deepEqual(await seen(operator), { resets: 1, decides: 1, state: 1, answers: 5, actions: 3, edits: 1, parts });
    await close(operator);
    // The name is taken: the server's word stands in the form, and nothing typed is lost.
    await page.getByRole("button", { name: "New key" }).click();
    await page.getByLabel("Name of the person").fill("vera");
    await page.getByRole("button", { name: "Create" }).click();
    await visible(page.getByRole("alert").filter({ hasText: "a key named `vera` exists already" }));
    assert.equal(await page.getByLabel("Name of the person").inputValue(), "vera");
    await page.keyboard.press("Escape");
    await page.locator(".key-list .long-row", { hasText: "vera" }).getByRole("button", { name: "Revoke" }).click();
    const dialog = page.getByRole("dialog");
    await visible(dialog.getByText("vera"));
    await dialog.getByRole("button", { name: "Revoke" }).click();
    await viewer.page.getByText("Your login has ended.").waitFor({ timeout: 2_000 });
    await close(viewer);
    await gone(page.locator(".key-list .long-row", { hasText: "vera" }));
    await close(boss);
  });

  test("where the browser lets no page copy, the text is selected and the page says so", async () => {
    const opened = await open(server, "/ui/");
    const { page } = opened;
    // As on plain http to another host.
    await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
    await page.getByRole("button", { name: "Copy" }).click();
    await visible(page.getByRole("status").filter({ hasText: "does not let this page copy" }));
    assert.equal(await page.evaluate(() => getSelection()?.toString()), "toolhub keys create me --scope admin");
    await close(opened);
  });

  test("a key that cannot read tools reads which scope it lacks", async () => {
    const { key } = await server.key("caller", ["tools:call"]);
    const opened = await openAs(server, key);
    await visible(opened.page.locator("[data-bar=scope]", { hasText: "tools:read" }));
    await close(opened);
  });
});
