import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { visible, withPage } from "./browser.ts";
import { fill, richConfig, show, type Shown } from "./pages.ts";
import { TestServer } from "./server.ts";

describe("language", { concurrency: 1 }, () => {
  let server: TestServer;
  let pages: Shown[];
  before(async () => {
    server = await TestServer.start({ config: richConfig });
    pages = await fill(server);
  });
  after(() => server.stop());

  test("the page is Chinese on demand, and stays so", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      await page.getByRole("button", { name: "Display settings" }).click();
      await page.getByText("中文").click();
      await page.keyboard.press("Escape");
      await visible(page.getByText("需要处理"));
      assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
      await page.locator(".main-nav").getByText("审批").click();
      await visible(page.getByText("等待中").first());
    }, { language: undefined as never });
  });

  test("theme and time zone are chosen and remembered", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      await page.getByRole("button", { name: "Display settings" }).click();
      const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      const light = await ground();
      await page.getByLabel("Dark").check();
      assert.notEqual(await ground(), light);
      await page.getByLabel("Time zone").selectOption("Asia/Tokyo");
      await page.reload();
      assert.notEqual(await ground(), light);
      await page.getByRole("button", { name: "Display settings" }).click();
      assert.equal(await page.getByLabel("Time zone").inputValue(), "Asia/Tokyo");
    }, { theme: "light" });
  });

  test("every text of every page comes from the messages", async () => {
    const unmarked: string[] = [];
    await withPage(server, "/ui/", async ({ page }) => {
      for (const shown of pages) {
        await show(page, server, shown);
        const found = await page.evaluate(() => {
          const result: string[] = [];
          const isMarked = (text: string) => /^[^⟦]*⟦[\s\S]*⟧[^⟧]*$/.test(text);
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const parent = node.parentElement;
            const text = node.textContent ?? "";
            if (!parent || parent.closest("[data-raw], time, script, noscript") || !/\p{L}/u.test(text.replace(/\d+(\.\d+)? ?(ms|s|min|h|d|k|M|G|KiB|MiB|B)\b/g, ""))) continue;
            // A message may be spread over several nodes of one element.
            if (!isMarked(parent.textContent ?? "") && !isMarked(text)) result.push(text.trim());
          }
          for (const element of document.querySelectorAll("[aria-label], [placeholder], [title]")) {
            for (const name of ["aria-label", "placeholder", "title"]) {
              const text = element.getAttribute(name);
              const isOwn = element.closest("[data-raw], time") || element.matches("dd *, .block") || text === "thk_…";
              if (text && !isOwn && /\p{L}/u.test(text) && !text.includes("⟦")) result.push(`${name}: ${text}`);
            }
          }
          return result;
        });
        unmarked.push(...found.map((text) => `${shown.name}: ${text}`));
      }
    }, { language: "pseudo" });
    assert.deepEqual([...new Set(unmarked)], []);
  });
});
