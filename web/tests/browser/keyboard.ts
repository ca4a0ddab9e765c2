import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { gone, visible, withPage } from "./browser.ts";
import { TestServer, until } from "./server.ts";

describe("keyboard", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start()));
  after(() => server.stop());

  test("everything of a decision works with the keyboard alone", async () => {
    const id = await server.ask("dangerous", { folder: "/tmp/a" }, "keys");
    await withPage(server, "/ui/", async ({ page }) => {
      await visible(page.getByRole("link", { name: "Decide" }));
      const press = (...keys: string[]) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
      // The skip link is the first stop of Tab and is seen there.
      await press("Tab");
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to the content");
      assert.ok((await page.locator(".skip").boundingBox())!.y >= 0);
      await press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
      await press("g", "a");
      await visible(page.locator(".approval-list"));
      await press("j");
      await visible(page.getByRole("button", { name: "Allow once" }));
      await press("a");
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Allow once");
      const outline = await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle);
      assert.notEqual(outline, "none");
      assert.equal((await server.api("GET", `/api/v1/approvals/${id}`)).state, "pending");
      await press("Enter");
      await visible(page.locator("[data-outcome]"));
    });
  });

  test("the palette finds tools and pages and goes to a pasted id", async () => {
    const { id, approval } = { id: (await server.call("calculator", { expression: "2+2" })).id, approval: await server.ask("dangerous", { folder: "/tmp/b" }, "keys") };
    await withPage(server, "/ui/", async ({ page }) => {
      await visible(page.getByRole("link", { name: "Decide" }));
      await page.keyboard.press("/");
      await page.keyboard.type("danger");
      await visible(page.getByRole("option", { name: "dangerous approval · keys" }));
      await page.keyboard.press("Escape");
      await page.keyboard.press("/");
      await page.keyboard.type("calcu");
      await visible(page.getByRole("option", { name: /calculator/ }));
      await page.keyboard.press("Enter");
      await visible(page.locator("h1", { hasText: "calculator" }));
      await page.keyboard.press("Control+k");
      await page.keyboard.type(id);
      await visible(page.getByRole("option", { name: new RegExp(id) }));
      await page.keyboard.press("Enter");
      await visible(page.locator("#call", { hasText: "2+2" }));
      await page.keyboard.press("Control+k");
      await page.keyboard.type(approval);
      await page.keyboard.press("Enter");
      await visible(page.getByRole("button", { name: "Allow once" }));
      await page.keyboard.press("Control+k");
      await page.keyboard.type("call_00000000-0000-7000-8000-000000000000");
      await page.keyboard.press("Enter");
      await visible(page.getByText("There is no call with this id."));
      await page.keyboard.press("Escape");
      await gone(page.getByRole("dialog"));
      await page.keyboard.press("?");
      await visible(page.getByText("Keyboard shortcuts"));
      await page.keyboard.press("Escape");
      await page.keyboard.press("d");
      await page.getByLabel("Reason, for the model").waitFor();
      // Letters are text inside a field.
      await page.keyboard.type("g t a");
      assert.equal(await page.getByLabel("Reason, for the model").inputValue(), "g t a");
    });
  });

  test("the palette finds a thread among any number of others, and the state of a thread", async () => {
    await server.call("calculator", { expression: "1+1" }, "hidden-away");
    await server.api("PUT", "/api/v1/state/contexts/hidden-away%2Fcart/business", { data: { tea: 1 } });
    await withPage(server, "/ui/", async ({ page }) => {
      // The newest ones are others.
      await page.route(/\/api\/v1\/threads\?(?!.*q=)/, (route) => route.fulfill({ json: { items: [] } }));
      await visible(page.getByRole("navigation", { name: "Pages" }));
      await page.keyboard.press("/");
      await page.keyboard.type("en-away");
      await visible(page.getByRole("option", { name: /hidden-away/ }));
      await page.keyboard.press("Enter");
      await until("the thread to open", () => page.url().endsWith("/ui/threads/hidden-away"));
      await page.keyboard.press("Control+k");
      await page.keyboard.type("hidden-away/cart");
      await visible(page.getByRole("option", { name: /hidden-away\/cart/ }));
      await page.keyboard.press("Enter");
      await until("the state to open", () => page.url().endsWith("/ui/state/hidden-away%2Fcart"));
    });
  });

  test("a dialog stays open when a selection ends outside it, and closes with a click there", async () => {
    await withPage(server, "/ui/tools/calculator", async ({ page }) => {
      await page.getByRole("button", { name: "Maintenance…" }).click();
      const field = page.getByLabel("Reason", { exact: true });
      await field.fill("a long reason");
      const box = (await field.boundingBox())!;
      await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
      await page.mouse.down();
      await page.mouse.move(5, 5);
      await page.mouse.up();
      assert.equal(await field.inputValue(), "a long reason");
      await page.mouse.click(5, 5);
      await gone(page.getByRole("dialog"));
    });
  });

  test("a list is where it was after Back", async () => {
    await withPage(server, "/ui/tools", async ({ page }) => {
      await page.setViewportSize({ width: 1280, height: 320 });
      await visible(page.getByText("6 tools"));
      const list = page.locator(".long-list");
      await list.evaluate((element) => (element.scrollTop = 50));
      const scrolled = () => list.evaluate((element) => element.scrollTop);
      assert.equal(await scrolled(), 50);
      await page.getByRole("link", { name: "notes" }).evaluate((link: HTMLElement) => link.click());
      await visible(page.locator("h1", { hasText: "notes" }));
      await page.goBack();
      await until("the list to be where it was", async () => (await scrolled()) === 50);
      // A new visit begins at the top.
      await page.getByRole("link", { name: "Calls", exact: true }).click();
      await page.getByRole("link", { name: "Tools", exact: true }).click();
      await visible(page.getByText("6 tools"));
      assert.equal(await scrolled(), 0);
    });
  });

  test("j, k and Enter move through the tools", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      await visible(page.getByRole("navigation", { name: "Pages" }));
      await page.keyboard.press("g");
      await page.keyboard.press("t");
      await visible(page.getByText("6 tools"));
      for (const key of ["j", "j", "k"]) await page.keyboard.press(key);
      const name = (await page.locator(".long-row.selected .c-name").textContent())!;
      // In another order the same tool stays chosen, wherever it is then.
      await page.getByRole("columnheader", { name: "Name" }).getByRole("button").click();
      await visible(page.locator("[aria-sort=descending]"));
      assert.equal(await page.locator(".long-row.selected .c-name").textContent(), name);
      await page.locator("#main").focus();
      await page.keyboard.press("Enter");
      await until("the tool to open", () => page.url().endsWith(`/ui/tools/${name}`));
    });
  });
});
