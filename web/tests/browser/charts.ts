import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { visible, withPage } from "./browser.ts";
import { TestServer, until } from "./server.ts";

describe("charts", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start()));
  after(() => server.stop());

  test("the tiles count each second, and the charts show calls by outcome over the chosen time", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      const calls = page.locator(".chart", { hasText: "Calls per second" });
      await visible(calls.locator(".plot svg"));
      // Calls in more than one second: the one that is not over is not shown.
      await until("calls in the chart", async () => {
        await server.call("calculator", { expression: "1+1" });
        await server.call("calculator", { expression: "1/0" });
        return !/highest (0|–)/.test((await calls.getByRole("img").getAttribute("aria-label")) ?? "");
      }, 20_000);
      await visible(page.locator(".tile", { hasText: "Calls per second" }).locator(".spark"));
      assert.match((await calls.locator(".legend").textContent()) ?? "", /succeeded.*failed.*refused/);
      await page.getByRole("button", { name: "6 hours" }).click();
      await visible(page.locator(".segmented [aria-pressed=true]", { hasText: "6 hours" }));
      await page.reload();
      await visible(page.locator(".segmented [aria-pressed=true]", { hasText: "6 hours" }));
      await visible(page.locator(".chart .plot svg"));
      const { items } = await server.api("GET", "/api/v1/nodes");
      await visible(page.locator(".chart-note", { hasText: `Only calls of the node ${items[0].name}` }));
    });
  });

  test("a point of a chart says its time and values, and a tool has charts of its own", async () => {
    await server.call("clock");
    await withPage(server, "/ui/tools/clock", async ({ page }) => {
      const chart = page.locator(".chart", { hasText: "Calls per minute" });
      await visible(chart.locator(".plot svg"));
      // Not only when its minute is over.
      await visible(page.getByRole("img", { name: /Calls per minute: last 1, highest 1/ }));
      await chart.locator(".plot").hover();
      await visible(chart.locator("figcaption time"));
      assert.match((await chart.locator(".legend").textContent()) ?? "", /succeeded 0failed 0/);
    });
  });
});
