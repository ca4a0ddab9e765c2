import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { close, gone, logIn, open, openAs, visible } from "./browser.ts";
import { TestServer } from "./server.ts";

describe("keys", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ keys: true })));
  after(() => server.stop());

  test("a wrong key is refused with a sentence, a right one goes on where it began, and a logout ends it", async () => {
    const opened = await open(server, "/ui/tools/calculator");
    const { page } = opened;
    await page.getByLabel("API key").fill("thk_wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await visible(page.getByText("This key is not valid."));
    await logIn(page, server.adminKey);
    await visible(page.locator("h1", { hasText: "calculator" }));
    const cookies = await opened.context.cookies();
    assert.ok(cookies.length === 1 && cookies[0]!.httpOnly && cookies[0]!.sameSite === "Strict");
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("thk_")), false);
    await page.reload();
    await visible(page.locator("h1", { hasText: "calculator" }));
    await page.getByRole("button", { name: "Log out" }).click();
    await visible(page.getByLabel("API key"));
    await close(opened);
  });

  test("a viewer, an approver and an operator see exactly what they may do", async () => {
    const approval = await server.ask("dangerous", { folder: "/tmp/a" }, "t1");
    await server.api("PUT", "/api/v1/tools/notes/status", { status: "maintenance" });
    const seen = async (name: string, scopes: string[]) => {
      const { key } = await server.key(name, ["tools:read", ...scopes]);
      const opened = await openAs(server, key, `/ui/approvals/${approval}`);
      const { page } = opened;
      await visible(page.locator(".arguments"));
      const answers = await page.locator(".answers button").count();
      await page.goto(`${server.url}/ui/tools/notes`);
      await visible(page.getByText("Not offered to models"));
      const actions = await page.locator(".actions button").count();
      await page.goto(`${server.url}/ui/`);
      await visible(page.locator(".line", { hasText: "notes" }));
      const resets = await page.getByRole("button", { name: "Reset" }).count();
      const decides = await page.getByRole("link", { name: "Decide" }).count();
      await close(opened);
      return { answers, actions, resets, decides };
    };
    assert.deepEqual(await seen("viewer", []), { answers: 0, actions: 0, resets: 0, decides: 0 });
    assert.deepEqual(await seen("approver", ["approvals:write"]), { answers: 5, actions: 0, resets: 0, decides: 1 });
    assert.deepEqual(await seen("operator", ["tools:write"]), { answers: 0, actions: 3, resets: 1, decides: 0 });
  });

  test("a key that cannot read tools reads which scope it lacks", async () => {
    const { key } = await server.key("caller", ["tools:call"]);
    const opened = await openAs(server, key);
    await visible(opened.page.locator("[data-bar=scope]", { hasText: "tools:read" }));
    await close(opened);
  });

  test("a revoked key ends the page's stream and its session", async () => {
    const { id, key } = await server.key("gone", ["tools:read"]);
    const opened = await openAs(server, key);
    await visible(opened.page.getByText("Tools by status"));
    await server.api("DELETE", `/api/v1/keys/${id}`);
    await visible(opened.page.getByText("Your session has ended."));
    await gone(opened.page.getByRole("navigation", { name: "Pages" }));
    await close(opened);
  });
});
