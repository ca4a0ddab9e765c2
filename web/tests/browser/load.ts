import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { readFile } from "node:fs/promises";
import { typesOf } from "../../scripts/api-types.ts";
import { gone, visible, withPage } from "./browser.ts";
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

  const ids = Array.from({ length: 10_000 }, (_, index) => String(index).padStart(5, "0"));
  const at = new Date().toISOString();
  const long = "words ".repeat(40);
  const lists: { name: string; path: string; route: string; text: string; item: (id: string) => object }[] = [
    {
      name: "grants", path: "/ui/approvals?view=grants", route: "grants", text: `rule ${long}`,
      item: (id: string) => ({ id, changedTools: ["moved"], covers: { scope: "tool", tool: `name_${id}` }, grantedAt: at, grantedBy: "me", rule: `rule ${long}${id}` }),
    },
    {
      name: "refusals", path: "/ui/calls?view=refusals", route: "refusals", text: `reason ${long}`,
      item: (id: string) => ({ at, callId: id, caller: "me", code: "forbidden", tool: `name_${id}`, tenant: "default", text: `reason ${long}${id}` }),
    },
    {
      name: "API keys", path: "/ui/settings?view=keys", route: "keys", text: "",
      item: (id: string) => ({ id, name: `name_${id}`, origin: "created", scopes: ["tools:read", "tools:call"], tenant: "default" }),
    },
  ];
  for (const { name, path, route, text, item } of lists) {
    test(`a list of ten thousand ${name} has few rows in the document, and the keyboard reaches and opens them`, async () => {
      await withPage(server, "/ui/", async ({ page }) => {
        await page.route(new RegExp(`/api/v1/${route}\\?`), (request) => request.fulfill({ json: { items: ids.map((id) => item(id)) } }));
        await page.goto(server.url + path);
        const rows = page.locator("[role=rowgroup]:not(.long-head) > .long-row");
        const row = (index: number) => page.locator(`.long-row[aria-rowindex="${index + 2}"]`);
        await visible(row(0).getByText("name_00000"));
        assert.equal(await page.getByRole("table").getAttribute("aria-rowcount"), "10001");
        assert.ok((await rows.count()) < 60, `${await rows.count()} rows`);
        const { height } = (await row(0).boundingBox())!;
        await page.locator(".long-list").evaluate((list, top) => (list.scrollTop = top), 9_000 * height);
        await visible(row(9_000).getByText("name_09000"));
        assert.ok((await rows.count()) < 60, `${await rows.count()} rows`);
        // A row that was chosen comes into view, and opens with all that it is cut to.
        for (let step = 0; step < 40; step++) await page.keyboard.press("j");
        await page.keyboard.press("k");
        await visible(page.locator('.selected[aria-rowindex="40"]', { hasText: "name_00038" }));
        const frame = (await page.locator(".long-list").boundingBox())!;
        const chosen = (await page.locator(".selected").boundingBox())!;
        assert.ok(chosen.y >= frame.y + 36 && chosen.y + chosen.height <= frame.y + frame.height + 1, JSON.stringify({ frame, chosen }));
        await page.keyboard.press("Enter");
        await visible(page.getByRole("dialog").getByText(text ? `${text}00038` : "name_00038"));
        await page.keyboard.press("Escape");
        await gone(page.getByRole("dialog"));
        // As a click and a key on the button of a row do.
        await row(38).getByRole("button").first().click();
        await visible(page.getByRole("dialog").getByText("name_00038"));
        await page.keyboard.press("Escape");
        await row(37).getByRole("button").first().focus();
        await page.keyboard.press("Enter");
        await visible(page.getByRole("dialog").getByText("name_00037"));
      });
    });
  }
});
