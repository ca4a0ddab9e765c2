import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { readFile } from "node:fs/promises";
import { typesOf } from "../../scripts/api-types.ts";
import { visible, withPage } from "./browser.ts";
import { TestServer } from "./server.ts";

describe("load", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start()));
  after(() => server.stop());

  test("the page loads in at most five requests, and keeps to its policy", async () => {
    await withPage(server, "/ui/", async ({ page, files }) => {
      await visible(page.getByText("Nothing needs your attention."));
      assert.ok(files.length <= 5, files.join("\n"));
      const response = await page.request.get(`${server.url}/ui/`);
      assert.match(response.headers()["content-security-policy"] ?? "", /default-src 'none'.*frame-ancestors 'none'/);
      assert.doesNotMatch(await response.text(), /\{\{|style=|<script>/);
    });
  });

  test("the generated types match the OpenAPI document; if not: npm run types", async () => {
    const document = await (await fetch(`${server.url}/openapi.json`)).text();
    const generated = await readFile(new URL("../../src/api/schema.ts", import.meta.url), "utf8");
    assert.equal(await typesOf(document), generated);
  });

  test("without scripts a sentence leads to the API", async () => {
    await withPage(server, "/ui/", async ({ page }) => visible(page.getByRole("link", { name: "API reference" })), { javaScriptEnabled: false });
  });

  test("a browser that does not understand the script shows a sentence that leads to the API", async () => {
    await withPage(server, "/ui/", async ({ page, context, problems }) => {
      await visible(page.getByText("Nothing needs your attention."));
      assert.equal(await page.getByText("too old").count(), 0);
      await context.route("**/app.js", (route) => route.fulfill({ contentType: "text/javascript", body: "a script of the future" }));
      await page.reload();
      await visible(page.locator("p", { hasText: "too old" }).getByRole("link", { name: "API reference" }));
      // The script is not understood, and nothing else goes wrong.
      assert.deepEqual(problems.splice(0).map((text) => text.split(":")[0]), ["error"]);
    });
  });

  test("an address that names nothing shows the closest names and the way back", async () => {
    await withPage(server, "/ui/tolls", async ({ page }) => {
      await visible(page.getByText("Page not found"));
      await page.getByRole("main").getByRole("link", { name: "Tools", exact: true }).click();
      await visible(page.getByText("6 tools"));
    });
    await withPage(server, "/ui/tools/calcullator", async ({ page }) => {
      await page.getByRole("link", { name: "calculator" }).click();
      await visible(page.locator("h1", { hasText: "calculator" }));
    });
    await withPage(server, "/ui/approvals/apr_00000000-0000-7000-8000-000000000000", async ({ page }) => {
      await visible(page.getByText("Approval not found"));
      await page.getByRole("link", { name: "Back to Approvals" }).click();
      await visible(page.getByText("No approvals are waiting"));
      await visible(page.getByText("toolhub call"));
    });
  });

  test("on a narrow page the links of the current page and part are in view", async () => {
    await withPage(server, "/ui/settings?view=about", async ({ page }) => {
      await visible(page.getByText("openapi.json"));
      for (const row of [".main-nav", ".tabs"]) {
        const { x, width } = (await page.locator(`${row} [aria-current]`).boundingBox())!;
        assert.ok(x >= 0 && x + width <= 390, `${row}: ${x} to ${x + width}`);
      }
    }, { viewport: { width: 390, height: 844 } });
  });

  test("a list of ten thousand tools has few rows in the document", async () => {
    const many = Array.from({ length: 10_000 }, (_, index) => ({
      id: `tool_${index}`, name: `tool_${String(index).padStart(5, "0")}`, kind: "rest", description: "One of many", parameters: {}, metadata: {}, status: "available", reason: "never run",
      annotations: { readOnly: true, destructive: false, idempotent: true, openWorld: false }, stats: { calls: 0, errors: 0, inFlight: 0, queued: 0, p95Ms: 0 },
    }));
    await withPage(server, "/ui/", async ({ page }) => {
      await page.route("**/api/v1/tools?**", (route) => {
        const from = Number(new URL(route.request().url()).searchParams.get("cursor") ?? 0);
        return route.fulfill({ json: { items: many.slice(from, from + 500), nextCursor: from + 500 < many.length ? String(from + 500) : null } });
      });
      await page.getByRole("link", { name: "Tools", exact: true }).first().click();
      await visible(page.getByText("10000 tools"));
      assert.ok((await page.locator(".long-row").count()) < 100);
      await page.locator(".long-list").evaluate((list) => (list.scrollTop = 9_000 * 36));
      await visible(page.getByText("tool_09000"));
      assert.ok((await page.locator(".long-row").count()) < 100);
      await page.getByRole("searchbox").fill("tool_04242");
      await visible(page.getByText("1 of 10000 tools"));
    });
  });
});
