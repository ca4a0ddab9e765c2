import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Page } from "playwright-core";
import { startProxy } from "../../scripts/proxy.ts";
import { close, gone, newContext, open, visible, watch, withPage } from "./browser.ts";
import { freePort, TestServer, until } from "./server.ts";

/** The page may connect by itself before the button is pressed; it is gone then. */
const tryNow = (page: Page) => page.getByRole("button", { name: "Try now" }).click({ timeout: 2_000 }).catch(() => undefined);

describe("connection", { concurrency: 1 }, () => {
  test("a killed server turns numbers grey with their time; back again, everything is read anew", async () => {
    const server = await TestServer.start();
    await server.call("calculator", { expression: "1+1" });
    await withPage(server, "/ui/tools", async ({ page }) => {
      await visible(page.getByText("6 tools"));
      await server.kill();
      await visible(page.locator("[data-bar=lost]", { hasText: "Connection lost since" }));
      await visible(page.locator(".fresh.old .as-of time"));
      const number = page.locator(".long-row", { hasText: "calculator" }).locator(".c-calls .num");
      assert.equal(await number.textContent(), "1");
      const colour = () => number.evaluate((element) => getComputedStyle(element).color);
      const quiet = await page.locator(".quiet").first().evaluate((element) => getComputedStyle(element).color);
      assert.equal(await colour(), quiet);
      await server.run();
      await tryNow(page);
      await gone(page.locator("[data-bar=lost]"));
      await gone(page.locator(".fresh.old"));
      // The counters began anew with the server; the old one must not be shown as new.
      await visible(page.locator(".long-row", { hasText: "calculator" }).locator(".c-calls .quiet"));
      await server.api("POST", "/api/v1/tools/notes/disable", {});
      await visible(page.locator(".long-row", { hasText: "notes" }).getByText("unavailable"));
    });
    await server.stop();
  });

  test("a server that says nothing any more turns its numbers grey within seconds, and is live again when it goes on", async () => {
    const server = await TestServer.start();
    await withPage(server, "/ui/", async ({ page, context }) => {
      // The stream in the page is the same as the one in the worker.
      await context.addInitScript(() => delete (globalThis as { SharedWorker?: unknown }).SharedWorker);
      await page.reload();
      await visible(page.locator(".tile:not(.old)", { hasText: "Calls per second" }).locator(".tile-value", { hasText: /\d/ }));
      server.stand();
      // Far less than the comments of the stream would take to be missed.
      await page.locator(".tile.old", { hasText: "Calls per second" }).waitFor({ timeout: 15_000 });
      await page.locator("[data-bar=lost]").waitFor({ timeout: 15_000 });
      server.go();
      await page.locator("[data-bar=lost]").waitFor({ state: "hidden", timeout: 15_000 });
      await page.locator(".tile.old").waitFor({ state: "hidden", timeout: 15_000 });
      await gone(page.locator(".attention .fresh.old"));
    });
    await server.stop();
  });

  test("a list that cannot be read turns grey and says why, until it is read again", async () => {
    const server = await TestServer.start();
    await withPage(server, "/ui/tools", async ({ page }) => {
      await visible(page.getByText("6 tools"));
      await page.route(/\/api\/v1\/tools/, (route) => route.fulfill({ status: 503, json: { type: "", title: "", status: 503, code: "store_unavailable", detail: "the store is away" } }));
      await server.api("POST", "/api/v1/tools/notes/disable", {});
      await visible(page.locator(".fresh.old .as-of", { hasText: "the store is away" }));
      await page.unroute(/\/api\/v1\/tools/);
      await page.locator(".fresh.old").waitFor({ state: "hidden", timeout: 15_000 });
      await visible(page.locator(".long-row", { hasText: "notes" }).getByText("unavailable"));
    });
    await server.stop();
  });

  test("a page that cannot be drawn says so and offers to load it again; a time zone that is none changes nothing", async () => {
    const server = await TestServer.start();
    await withPage(server, "/ui/", async ({ page, problems }) => {
      await page.evaluate(() => localStorage.setItem("toolhub.timeZone", "Mars/Base"));
      await page.route(/\/api\/v1\/tools\?/, (route) => route.fulfill({ json: { items: [{ name: "odd", status: "available" }] } }));
      await page.goto(`${server.url}/ui/tools`);
      const reload = page.getByRole("alert").filter({ hasText: "could not be shown" }).getByRole("button", { name: "Reload" });
      await visible(reload);
      await page.getByRole("link", { name: "Nodes", exact: true }).click();
      await visible(page.locator("tr[data-state=alive] time"));
      await page.getByRole("link", { name: "Tools", exact: true }).click();
      await visible(reload);
      await page.unroute(/\/api\/v1\/tools\?/);
      await reload.click();
      await visible(page.getByText("6 tools"));
      assert.ok(problems.length > 0 && problems.every((problem) => problem.includes("TypeError")), problems.join("\n"));
      problems.length = 0;
    });
    await server.stop();
  });

  test("an approval, and what stands beside a conversation, turn grey when the connection is lost", async () => {
    const server = await TestServer.start();
    const id = await server.ask("dangerous", { folder: "/tmp/x" }, "greyed");
    await withPage(server, `/ui/approvals/${id}`, async ({ page, context }) => {
      const thread = await context.newPage();
      await thread.goto(`${server.url}/ui/threads/greyed`);
      await visible(page.getByRole("button", { name: "Allow once" }));
      await visible(thread.locator(".side .names a"));
      await server.kill();
      await visible(page.locator(".fresh.old > .approval"));
      await visible(thread.locator(".side .fresh.old > .as-of"));
    });
    await server.stop();
  });

  test("what changed while the connection was lost is there afterwards", async () => {
    const server = await TestServer.start();
    await withPage(server, "/ui/approvals", async ({ page, context }) => {
      await visible(page.getByText("No approvals are waiting"));
      await context.setOffline(true);
      const port = server.port;
      await server.kill();
      await visible(page.locator("[data-bar=lost]"));
      await server.run();
      assert.equal(server.port, port);
      await server.ask("dangerous", { folder: "/tmp/x" }, "away");
      await context.setOffline(false);
      await visible(page.locator(".approval-list", { hasText: "away" }));
    });
    await server.stop();
  });

  test("ten tabs are live on one stream", async () => {
    const server = await TestServer.start();
    const context = await newContext();
    const problems: string[] = [];
    const pages = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const page = await context.newPage();
        watch(page, server, problems, []);
        await page.goto(`${server.url}/ui/approvals`);
        return page;
      }),
    );
    await Promise.all(pages.map((page) => visible(page.getByText("No approvals are waiting"))));
    await server.ask("dangerous", { folder: "/tmp/x" }, "tabs");
    await Promise.all(pages.map((page) => visible(page.locator(".approval-list", { hasText: "tabs" }))));
    const requests = (await (await fetch(`${server.url}/metrics`)).text()).match(/^toolhub_http_requests_total\{[^\n]*route="\/api\/v1\/events"[^\n]*\} (\d+)$/m);
    assert.equal(requests?.[1], "1", "one stream for all tabs");
    // An eleventh request would wait for ever if each tab had a stream of its own.
    const last = pages[9]!;
    await last.locator(".approval-list a").click();
    await visible(last.getByRole("button", { name: "Allow once" }));
    await context.close();
    assert.deepEqual(problems, []);
    await server.stop();
  });

  test("a browser without shared workers has a stream in its page", async () => {
    const server = await TestServer.start();
    const context = await newContext();
    await context.addInitScript(() => delete (globalThis as { SharedWorker?: unknown }).SharedWorker);
    const page = await context.newPage();
    await page.goto(`${server.url}/ui/approvals`);
    await visible(page.getByText("No approvals are waiting"));
    await server.ask("dangerous", { folder: "/tmp/x" }, "alone");
    await visible(page.locator(".approval-list", { hasText: "alone" }));
    await context.close();
    await server.stop();
  });

  test("behind a proxy with a path prefix everything works below the prefix", async (context) => {
    const port = await freePort();
    const server = await TestServer.start({ publicUrl: `http://127.0.0.1:${port}/hub` });
    const proxy = await startProxy(server.url, "/hub", undefined, port);
    // An open one keeps the suite from ending.
    context.after(() => proxy.close());
    const opened = await open(proxy, "/hub/ui/");
    const { page } = opened;
    await visible(page.getByText("Nothing needs your attention."));
    await page.getByRole("link", { name: "Tools", exact: true }).click();
    assert.equal(new URL(page.url()).pathname, "/hub/ui/tools");
    await page.getByRole("link", { name: "calculator" }).click();
    await page.reload();
    await visible(page.getByText("Offered to models"));
    await server.ask("dangerous", { folder: "/tmp/x" }, "prefixed");
    await until("the title to count", async () => (await page.title()).startsWith("(1) "));
    await close(opened);
    await server.stop();
  });

  test("another version of the server asks for a reload", async () => {
    const server = await TestServer.start();
    await withPage(server, "/ui/", async ({ page, context }) => {
      await visible(page.getByText("Nothing needs your attention."));
      const session = await (await page.request.get(`${server.url}/ui/session`)).json();
      await context.route("**/ui/session", (route) => route.fulfill({ json: { ...session, uiVersion: "other", version: "9.9.9" } }));
      await server.kill();
      await visible(page.locator("[data-bar=lost]"));
      await server.run();
      await tryNow(page);
      await visible(page.locator("[data-bar=version]", { hasText: "9.9.9" }));
    });
    await server.stop();
  });
});
