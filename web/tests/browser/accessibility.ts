import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import type { CDPSession } from "playwright-core";
import { withPage } from "./browser.ts";
import { fill, richConfig, show, type Shown } from "./pages.ts";
import { TestServer } from "./server.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

describe("accessibility", { concurrency: 1 }, () => {
  let server: TestServer;
  let pages: Shown[];
  before(async () => {
    server = await TestServer.start({ config: richConfig });
    pages = await fill(server);
  });
  after(() => server.stop());

  const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  /** What depends on colours: nothing else differs between the themes. */
  const colourRules = { type: "rule", values: ["color-contrast", "link-in-text-block"] };

  /** Loads axe in a world of its own: the policy of the page lets no foreign script in. */
  async function loadAxe(debug: CDPSession): Promise<number> {
    const { frameTree } = await debug.send("Page.getFrameTree");
    const { executionContextId } = await debug.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id, worldName: "axe" });
    await debug.send("Runtime.evaluate", { expression: axe, contextId: executionContextId });
    return executionContextId;
  }

  /** Of the whole page, or of what differs between pages. */
  async function violations(debug: CDPSession, contextId: number, runOnly: unknown, isWhole = true): Promise<string[]> {
    const context = isWhole ? "document" : `document.querySelector("dialog[open]") ?? "main"`;
    const run = `axe.run(${context}, { resultTypes: ["violations"], preload: false, iframes: false, runOnly: ${JSON.stringify(runOnly)} }).then((result) =>
      result.violations.map((one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.target.join(" ") + " " + (node.any[0]?.message ?? node.all[0]?.message ?? node.none[0]?.message ?? "")).join(" | ")))`;
    const { result } = await debug.send("Runtime.evaluate", { expression: run, contextId, awaitPromise: true, returnByValue: true });
    return result.value as string[];
  }

  test("axe finds nothing on any page, in both themes and widths", async () => {
    const found: string[] = [];
    await withPage(server, "/ui/", async ({ page, context }) => {
      const debug = await context.newCDPSession(page);
      let executionContextId = 0;
      for (const shown of pages) {
        await page.setViewportSize({ width: 1280, height: 844 });
        if ((await show(page, server, shown)) || executionContextId === 0) executionContextId = await loadAxe(debug);
        for (const width of [1280, 390]) {
          await page.setViewportSize({ width, height: 844 });
          for (const theme of ["light", "dark"] as const) {
            await page.emulateMedia({ colorScheme: theme });
            const isLight = theme === "light";
            const texts = await violations(debug, executionContextId, isLight ? rules : colourRules, isLight || shown === pages[0]);
            found.push(...texts.map((text) => `${shown.name}, ${width}, ${theme}: ${text}`));
          }
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          if (wide > width) found.push(`${shown.name}: ${wide} pixels wide in ${width}`);
        }
      }
    });
    assert.deepEqual(found, []);
  });

  test("axe finds nothing on pages in Chinese", async () => {
    const found: string[] = [];
    await withPage(server, "/ui/", async ({ page, context }) => {
      const debug = await context.newCDPSession(page);
      for (const shown of pages.filter(({ name }) => name === "overview" || name === "thread")) {
        await show(page, server, shown);
        assert.equal(await page.locator("html").getAttribute("lang"), "zh-CN");
        found.push(...(await violations(debug, await loadAxe(debug), rules)).map((text) => `${shown.name}: ${text}`));
      }
    }, { language: "zh" });
    assert.deepEqual(found, []);
  });
});
