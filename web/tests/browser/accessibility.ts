import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import type { CDPSession } from "playwright-core";
import { withPage } from "./browser.ts";
import { fill, show, type Shown } from "./pages.ts";
import { TestServer } from "./server.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let server: TestServer;
let pages: Shown[];
before(async () => {
  server = await TestServer.start();
  pages = await fill(server);
});
after(() => server.stop());

/** Runs axe in a world of its own: the policy of the page lets no foreign script in. */
async function violations(debug: CDPSession): Promise<string[]> {
  const { frameTree } = await debug.send("Page.getFrameTree");
  const { executionContextId: contextId } = await debug.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id, worldName: "axe" });
  await debug.send("Runtime.evaluate", { expression: axe, contextId });
  const run = `axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((result) =>
    result.violations.map((one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.target.join(" ") + " " + (node.any[0]?.message ?? node.all[0]?.message ?? node.none[0]?.message ?? "")).join(" | ")))`;
  const { result } = await debug.send("Runtime.evaluate", { expression: run, contextId, awaitPromise: true, returnByValue: true });
  return result.value as string[];
}

async function check(theme: "light" | "dark", width: number): Promise<void> {
  const found: string[] = [];
  await withPage(server, "/ui/", async ({ page, context }) => {
    const debug = await context.newCDPSession(page);
    for (const shown of pages) {
      await show(page, server, shown);
      found.push(...(await violations(debug)).map((text) => `${shown.name}: ${text}`));
      const [wide, view] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      if (wide! > view!) found.push(`${shown.name}: ${wide} pixels wide in ${view}`);
    }
  }, { theme, viewport: { width, height: 844 } });
  assert.deepEqual(found, []);
}

for (const theme of ["light", "dark"] as const) {
  for (const width of [1280, 390]) test(`axe finds nothing: ${theme}, ${width} pixels`, () => check(theme, width));
}
