import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { gone, visible, withPage } from "./browser.ts";
import { graphConfig } from "./pages.ts";
import { TestServer, until } from "./server.ts";

describe("graph", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ config: graphConfig })));
  after(() => server.stop());

  test("dependencies are drawn by their kind, and a status changes without reload", async () => {
    await withPage(server, "/ui/graph", async ({ page }) => {
      const clock = page.locator("a.graph-tool", { hasText: "clock" });
      await visible(clock.getByText("available"));
      assert.equal(await page.locator("a.graph-tool").count(), 5);
      // clock and calculator to either; clock, either and report to in_order; clock to report.
      assert.deepEqual(await page.locator("g.edge.any").count(), 2);
      assert.deepEqual(await page.locator("g.edge.sequence").count(), 2);
      assert.deepEqual(await page.locator("g.edge.sequence text").allTextContents(), ["1", "2"]);
      const leftOf = async (name: string) => (await page.locator("a.graph-tool", { hasText: name }).boundingBox())!.x;
      assert.ok((await leftOf("clock")) < (await leftOf("either")) && (await leftOf("either")) < (await leftOf("in_order")));
      await server.api("POST", "/api/v1/tools/clock/disable", { reason: "broken" });
      await visible(clock.getByText("unavailable"));
      await server.api("POST", "/api/v1/tools/clock/enable");
      await visible(clock.getByText("available", { exact: true }));
    });
  });

  test("the keyboard chooses a tool, sees only its neighbourhood, and opens its page", async () => {
    await withPage(server, "/ui/graph", async ({ page }) => {
      await visible(page.locator("a.graph-tool"));
      await page.locator(".graph-frame").focus();
      const order: string[] = [];
      for (let step = 0; step < 5; step++) {
        await page.keyboard.press("Tab");
        order.push((await page.evaluate(() => document.activeElement?.querySelector("code")?.textContent)) ?? "");
      }
      assert.deepEqual(order.slice(0, 2).sort(), ["calculator", "clock"], "from left to right");
      assert.equal(order[4], "in_order");
      await page.locator("a.graph-tool", { hasText: "report" }).focus();
      await page.keyboard.press("Enter");
      await gone(page.locator("a.graph-tool", { hasText: "either" }));
      assert.match(page.url(), /tool=report/);
      assert.equal(await page.locator("a.graph-tool").count(), 3);
      await page.locator("a.graph-tool[aria-current]").focus();
      await page.keyboard.press("Enter");
      await visible(page.locator("h1", { hasText: "report" }));
    });
  });

  test("the field keeps the focus when it is emptied, and follows the address", async () => {
    await withPage(server, "/ui/graph?tool=report", async ({ page }) => {
      const tool = page.getByLabel("Choose a tool");
      assert.equal(await tool.inputValue(), "report");
      await tool.fill("");
      await visible(page.locator("a.graph-tool", { hasText: "either" }));
      await page.keyboard.type("clo");
      await page.keyboard.press("Enter");
      await visible(page.locator(".chosen", { hasText: "clock" }));
      assert.equal(await tool.inputValue(), "clock");
      await page.getByRole("link", { name: "Whole graph" }).click();
      await until("the field to be empty", async () => (await tool.inputValue()) === "");
    });
  });

  test("a thread shows what is met in it, also as a list", async () => {
    await server.call("calculator", { expression: "1+1" }, "t1");
    await withPage(server, "/ui/graph", async ({ page }) => {
      await page.getByLabel("Thread to explain").fill("t1");
      await page.keyboard.press("Enter");
      await visible(page.locator("g.edge.any text", { hasText: "✓" }));
      await visible(page.locator("a.graph-tool", { hasText: "in_order" }).getByText("unavailable"));
      await page.getByRole("button", { name: "As a list" }).click();
      const row = page.locator("tr", { hasText: "report" }).first();
      await visible(row.getByText("missing"));
      await server.call("clock", {}, "t1");
      await visible(row.getByText("met", { exact: true }));
      await page.getByLabel("Thread to explain").fill("unheard-of");
      await page.keyboard.press("Enter");
      await visible(page.getByText("there is no thread `unheard-of`"));
    });
  });

  test("beyond 500 tools with dependencies the neighbourhood of a chosen one is drawn", async () => {
    const many = Array.from({ length: 260 }, (_, index) => `[tools.base_${index}]\ncommand = "cat"\n[tools.next_${index}]\ncommand = "cat"\ndepends_on = ["base_${index}"]\n`);
    const large = await TestServer.start({ config: many.join("") });
    await withPage(large, "/ui/graph", async ({ page }) => {
      await visible(page.getByText("522 tools have dependencies, and 500 can be drawn."));
      assert.equal(await page.locator("a.graph-tool").count(), 0);
      await page.getByLabel("Choose a tool").fill("next_17");
      await page.keyboard.press("Enter");
      await visible(page.locator("a.graph-tool", { hasText: "base_17" }));
      assert.equal(await page.locator("a.graph-tool").count(), 2);
      await page.goto(`${large.url}/ui/graph?tool=next_1777`);
      await visible(page.getByRole("link", { name: "next_177" }));
    });
    await large.stop();
  });

  test("without dependencies the page has the lines that make one", async () => {
    await withPage(server, "/ui/graph", async ({ page, context }) => {
      await visible(page.locator("a.graph-tool"));
      await context.route("**/api/v1/graph", (route) => route.fulfill({ json: { nodes: [], edges: [] } }));
      await page.reload();
      await visible(page.getByText('depends_on = ["clock"]'));
    });
  });
});
