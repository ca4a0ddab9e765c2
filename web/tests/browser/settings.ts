import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { close, openAs, visible, gone, withPage } from "./browser.ts";
import { TestServer } from "./server.ts";

describe("settings", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ keys: true })));
  after(() => server.stop());

  const asBoss = async (path: string, act: (page: Page) => Promise<void>) => {
    const opened = await openAs(server, server.adminKey, path);
    await act(opened.page);
    await close(opened);
  };

  test("values of the config show where they come from, and are searched", async () => {
    await asBoss("/ui/settings", async (page) => {
      const row = (key: string) => page.locator(".config-list [role=row]", { has: page.getByText(key, { exact: true }) });
      await page.getByRole("searchbox").fill("status.failure");
      await visible(row("status.failure_threshold").getByText(/^toolhub\.toml:\d+$/));
      await page.getByRole("searchbox").fill("server.port");
      await visible(row("server.port").getByText(/^flag --port/));
      await page.getByRole("searchbox").fill("server.body_limit");
      await visible(row("server.body_limit").getByText("default", { exact: true }));
      await page.getByLabel("with defaults").uncheck();
      await visible(page.getByText("Nothing matches."));
      await page.getByLabel("with defaults").check();
      await row("server.body_limit").getByRole("link").click();
      await visible(page.getByRole("dialog").getByText("2MiB"));
    });
  });

  test("a reload shows problems at their lines, then what changed and what waits for a restart", async () => {
    const good = server.readConfig();
    await asBoss("/ui/settings", async (page) => {
      const reload = page.getByRole("button", { name: "Reload" });
      server.writeConfig(`${good}\n[tools.bad]\nbuiltinn = "clock"\n`);
      await reload.click();
      const line = good.split("\n").length + 2;
      await visible(page.getByRole("alert").filter({ hasText: "Not reloaded" }).getByText(new RegExp(`^toolhub\\.toml:${line}:`)));
      await visible(page.getByRole("alert").getByText("did you mean `builtin`?"));
      server.writeConfig(`${good}\n[tools.another]\nbuiltin = "clock"\n[server]\nbody_limit = "3MiB"\n`);
      await reload.click();
      const report = page.getByRole("status").filter({ hasText: "Reloaded" });
      await visible(report.locator("p", { hasText: "Added tools:" }).getByText("another"));
      await visible(report.locator("p", { hasText: "Wait for a restart:" }).getByText("server"));
      server.writeConfig(good);
      await reload.click();
      await visible(report.locator("p", { hasText: "Removed tools:" }).getByText("another"));
    });
  });

  test("settings wait for a restart until the server was restarted", async () => {
    const own = await TestServer.start();
    own.writeConfig(`${own.readConfig()}\n[server]\nbody_limit = "3MiB"\n`);
    await withPage(own, "/ui/settings", async ({ page }) => {
      await page.getByRole("button", { name: "Reload" }).click();
      const waiting = page.getByText("Wait for a restart:");
      await visible(waiting);
      await own.kill();
      await visible(page.locator("[data-bar=lost]"));
      await own.run();
      await gone(waiting);
    });
    await own.stop();
  });

  test("the audit log has what was done and what was refused", async () => {
    const { key } = await server.key("nosy", ["tools:read"]);
    assert.equal((await fetch(`${server.url}/api/v1/audit`, { headers: { authorization: `Bearer ${key}` } })).status, 403);
    await asBoss("/ui/settings?view=audit", async (page) => {
      const rows = page.locator(".audit-list [role=rowgroup]:not(.long-head) [role=row]");
      await page.getByRole("searchbox").fill("key.create");
      await visible(rows.filter({ hasText: "POST /api/v1/keys" }).filter({ hasText: "boss" }));
      await page.getByRole("searchbox").fill("denied api/v1/audit");
      await visible(rows.filter({ hasText: "403" }));
      await page.getByRole("searchbox").fill("nothing-like-this");
      await visible(page.getByText("No entry matches among those that were read."));
      // The match stands on the third page of older ones.
      const entries = Array.from({ length: 500 }, (_, at) => ({ id: `e${at}`, act: at === 350 ? "nothing-like-this" : "other", at: new Date().toISOString(), method: "POST", path: "/", status: 200 }));
      await page.route("**/api/v1/audit*", (route) => {
        const asked = new URL(route.request().url()).searchParams;
        const from = Number(asked.get("cursor") ?? 0);
        const to = from + Number(asked.get("limit"));
        return route.fulfill({ json: { items: entries.slice(from, to), nextCursor: to < entries.length ? String(to) : null } });
      });
      await page.reload();
      await page.getByRole("button", { name: "Older entries" }).click();
      await visible(rows.getByText("nothing-like-this"));
    });
  });

  test("a backup is made, and About names the version and the API", async () => {
    await asBoss("/ui/settings?view=backups", async (page) => {
      await page.getByRole("button", { name: "Back up now" }).click();
      await visible(page.getByText(/^toolhub restore .*toolhub-.*\.db$/));
      await page.getByRole("link", { name: "All backups in the audit log" }).click();
      await visible(page.locator(".audit-list").getByText("backup.make"));
      await page.getByRole("link", { name: "About" }).click();
      const { version } = await server.api("GET", "/api/v1/info");
      await visible(page.locator("main .facts").getByText(version, { exact: true }));
      await visible(page.getByRole("link", { name: "/openapi.json" }));
      await page.locator("main").getByRole("button", { name: "Display settings" }).click();
      await visible(page.getByRole("dialog").getByText("Time zone"));
    });
  });
});
