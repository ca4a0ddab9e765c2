import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { gone, visible, withPage } from "./browser.ts";
import { TestServer } from "./server.ts";

describe("status", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start()));
  after(() => server.stop());

  test("a tool that fails is withheld, counts down and comes back without a reload", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      await visible(page.getByText("Nothing needs your attention."));
      let loads = 0;
      page.on("load", () => loads++);
      for (let call = 0; call < 3; call++) await server.call("flaky");
      const line = page.locator(".line", { hasText: "flaky" });
      await visible(line.getByText("failed", { exact: true }));
      await visible(line.getByText("failed 3 times in a row"));
      await visible(line.locator(".countdown"));
      assert.match((await line.locator(".countdown").textContent()) ?? "", /^0:0[0-3]$/);
      await line.getByRole("link", { name: "Why?" }).click();
      await visible(page.getByText("Not offered to models"));
      await visible(page.getByText("upstream_unreachable").first());
      await visible(page.getByText("On probation"));
      await server.call("flaky");
      await visible(page.getByText("Offered to models", { exact: true }));
      await page.getByRole("link", { name: "Overview" }).click();
      await visible(page.getByText("Nothing needs your attention."));
      assert.equal(loads, 0);
    });
  });

  test("maintenance has a reason and an end, and a reset lifts it", async () => {
    await withPage(server, "/ui/tools/notes", async ({ page }) => {
      await page.getByRole("button", { name: "Maintenance…" }).click();
      await page.getByLabel("Reason").fill("new disk");
      await page.getByLabel("after 15 min").check();
      await page.getByRole("button", { name: "Start maintenance" }).click();
      await gone(page.getByRole("dialog"));
      await visible(page.locator("h1 .badge", { hasText: "maintenance" }));
      await visible(page.getByText("in maintenance: new disk"));
      assert.match((await page.locator(".facts .countdown").textContent()) ?? "", /^1[45]:\d\d$/);
      assert.equal((await server.call("notes", { text: "x" }, "t")).code, "tool_maintenance");
      await page.getByRole("button", { name: "Reset" }).click();
      await visible(page.locator("h1 .badge", { hasText: "available" }));
      await page.getByRole("button", { name: "Maintenance…" }).click();
      await page.getByLabel("at a time…").check();
      await page.getByLabel("Time of the end").fill("2020-01-01T10:00");
      await visible(page.getByText("This time is over."));
      assert.ok(await page.getByRole("button", { name: "Start maintenance" }).isDisabled());
    });
  });

  test("why a tool could not be disabled is said in the dialog", async () => {
    await withPage(server, "/ui/tools/clock", async ({ page }) => {
      await page.route("**/disable", (route) => route.fulfill({ status: 503, json: { type: "", title: "", status: 503, code: "store_unavailable", detail: "the store is away" } }));
      await page.getByRole("button", { name: "Disable…" }).click();
      await page.getByRole("button", { name: "Disable", exact: true }).click();
      await visible(page.getByRole("dialog").getByRole("alert").filter({ hasText: "the store is away" }));
    });
  });

  test("a tool is disabled with a reason and enabled again", async () => {
    await withPage(server, "/ui/tools/calculator", async ({ page }) => {
      await page.getByRole("button", { name: "Disable…" }).click();
      await page.getByLabel("Reason").fill("not needed");
      await page.getByRole("button", { name: "Disable", exact: true }).click();
      await visible(page.locator("h1 .badge", { hasText: "unavailable" }));
      await visible(page.getByText("not needed").first());
      await page.getByRole("button", { name: "Enable" }).click();
      await visible(page.locator("h1 .badge", { hasText: "available" }));
    });
  });

  test("a thread has its own reasons, its dependencies and its numbers", async () => {
    await server.api("POST", "/api/v1/threads", { id: "t1" });
    await withPage(server, "/ui/tools/report", async ({ page }) => {
      await page.getByLabel("Thread to explain").fill("t1");
      await page.keyboard.press("Enter");
      await visible(page.getByText("Why, in this thread"));
      await visible(page.getByText("Must succeed first"));
      await visible(page.getByText("Not offered to models"));
      assert.match(page.url(), /thread=t1/);
      await page.getByRole("link", { name: "Dependencies" }).click();
      await page.getByRole("link", { name: "clock" }).click();
      await page.getByRole("link", { name: "Dependencies" }).click();
      await visible(page.getByRole("link", { name: "report" }));
      await server.call("clock", {}, "t1");
      await page.locator(".tabs").getByRole("link", { name: "Calls" }).click();
      await page.locator("table.calls tbody a").first().click();
      await visible(page.getByText("none: the outside world has not changed"));
    });
  });

  test("a list is searched, filtered and sorted, and its address says how", async () => {
    await withPage(server, "/ui/tools", async ({ page }) => {
      await visible(page.getByText("6 tools"));
      await page.getByRole("searchbox").fill("arithmetic");
      await visible(page.getByText("1 of 6 tools"));
      await page.reload();
      await visible(page.getByText("1 of 6 tools"));
      await page.getByRole("searchbox").fill("");
      await page.getByRole("button", { name: "Calls" }).click();
      await visible(page.locator("[role=columnheader][aria-sort=descending]"));
      await page.getByLabel("Status", { exact: true }).selectOption("withheld");
      await visible(page.getByText("No tool matches this filter."));
    });
  });

  test("what could not be read, and a key that expires, are said instead of that all is well", async () => {
    const own = await TestServer.start();
    await withPage(own, "/ui/", async ({ page }) => {
      const allWell = page.getByText("Nothing needs your attention.");
      await visible(allWell);
      await page.route("**/api/v1/runs?**", (route) => route.fulfill({ status: 503, json: { type: "", title: "", status: 503, code: "store_unavailable", detail: "the store is away" } }));
      await page.reload();
      const line = page.locator(".attention .line", { hasText: "Runs could not be read" });
      await visible(line.getByText("the store is away"));
      await gone(allWell);
      await page.unroute("**/api/v1/runs?**");
      await line.getByRole("button", { name: "Try again" }).click();
      await visible(allWell);
      await own.api("POST", "/api/v1/keys", { name: "short", scopes: ["tools:read"], expiresIn: "1h" });
      await page.reload();
      await visible(page.locator(".attention .line", { hasText: "short" }).getByText("expires soon"));
      await visible(page.locator(".attention h2 .count", { hasText: "1" }));
      await gone(allWell);
    });
    await own.stop();
  });

  test("the number beside what needs attention counts all lines, and lines lead to what they are about", async () => {
    const own = await TestServer.start();
    for (let at = 0; at < 8; at++) await own.ask("dangerous", { folder: `/tmp/${at}` }, `t${at}`);
    await withPage(own, "/ui/", async ({ page }) => {
      await visible(page.locator(".attention .quiet-count", { hasText: /^8$/ }));
      await visible(page.locator(".attention").getByText("and 2 more"));
      await page.route("**/api/v1/info", async (route) => {
        const json = await (await route.fetch()).json();
        await route.fulfill({ json: { ...json, stuck: 2, restartPending: ["server.body_limit"] } });
      });
      await page.route(/\/api\/v1\/tools\?/, async (route) => {
        const json = await (await route.fetch()).json();
        await route.fulfill({ json: { ...json, items: json.items.map((tool: object & { name: string }) => (tool.name === "clock" ? { ...tool, withheldThreads: 3 } : tool)) } });
      });
      await page.route(/\/api\/v1\/tools\/clock$/, async (route) => {
        const json = await (await route.fetch()).json();
        await route.fulfill({ json: { ...json, withheldThreads: 3, withheldIn: ["t 7"] } });
      });
      await page.reload();
      await visible(page.locator(".line", { hasText: "server.body_limit" }));
      assert.match((await page.locator(".line", { hasText: "2 calls are stuck" }).getByRole("link", { name: "Show tools" }).getAttribute("href"))!, /sort=-inFlight$/);
      const withheld = page.locator(".line", { hasText: "withheld in 3 threads" });
      await visible(withheld.getByText("t 7"));
      assert.match((await withheld.getByRole("link", { name: "Why?" }).getAttribute("href"))!, /\/tools\/clock\?thread=t\+7$/);
    });
    await own.stop();
  });
});
