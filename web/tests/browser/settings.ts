import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { close, gone, logIn, open, openAs, visible, type Watched } from "./browser.ts";
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

  /** Makes a key from a preset in the page, and logs in with it in another browser. */
  const withPreset = async (page: Page, preset: string, name: string): Promise<Watched> => {
    await page.getByRole("button", { name: "New key" }).click();
    await page.getByLabel(preset, { exact: true }).check();
    await page.getByLabel("Name of the person").fill(name);
    await page.getByRole("button", { name: "Create" }).click();
    const shown = page.locator(".callout", { hasText: `${name} was created. Copy it now` });
    const key = await shown.locator(".command code").innerText();
    await visible(page.locator("tr", { hasText: name }));
    const opened = await open(server, "/ui/");
    await logIn(opened.page, key);
    return opened;
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
      await row("server.body_limit").getByRole("button").click();
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

  test("keys of the presets see and may do what they should, and a revoked one ends at once", async () => {
    await server.api("PUT", "/api/v1/state/contexts/t1%2Fcart/business", { data: { tea: 1 } });
    const approval = await server.ask("dangerous", { folder: "/tmp/a" }, "t1");
    const seen = async ({ page }: Watched) => {
      await visible(page.getByText("Tools by status"));
      const state = await page.locator(".main-nav").getByText("State").count();
      await page.goto(`${server.url}/ui/approvals/${approval}`);
      await visible(page.locator(".arguments"));
      const answers = await page.locator(".answers button").count();
      await page.goto(`${server.url}/ui/tools/notes`);
      await visible(page.getByText("Offered to models"));
      const actions = await page.locator(".actions button").count();
      await page.goto(`${server.url}/ui/state/t1%2Fcart`);
      await visible(page.locator("main :is(.block, .callout)"));
      const edits = await page.getByRole("button", { name: "Edit" }).count();
      // A part that the key may not see says which scope it lacks, and no link leads to others.
      await page.goto(`${server.url}/ui/settings?view=audit`);
      await visible(page.getByRole("status").filter({ hasText: "admin" }));
      const parts = await page.locator(".tabs a").allInnerTexts();
      return { state, answers, actions, edits, parts };
    };
    const parts = ["Audit", "About"];
    await asBoss("/ui/settings?view=keys", async (page) => {
      const viewer = await withPreset(page, "Viewer", "vera");
      assert.deepEqual(await seen(viewer), { state: 1, answers: 0, actions: 0, edits: 0, parts });
      const approver = await withPreset(page, "Approver", "anna");
      assert.deepEqual(await seen(approver), { state: 0, answers: 5, actions: 0, edits: 0, parts });
      await close(approver);
      const operator = await withPreset(page, "Operator", "olga");
      assert.deepEqual(await seen(operator), { state: 1, answers: 5, actions: 3, edits: 1, parts });
      await close(operator);
      // The name is taken: the server's word stands in the form, and nothing typed is lost.
      await page.getByRole("button", { name: "New key" }).click();
      await page.getByLabel("Name of the person").fill("vera");
      await page.getByRole("button", { name: "Create" }).click();
      await visible(page.getByRole("alert").filter({ hasText: "a key named `vera` exists already" }));
      assert.equal(await page.getByLabel("Name of the person").inputValue(), "vera");
      await page.keyboard.press("Escape");
      await page.locator("tr", { hasText: "vera" }).getByRole("button", { name: "Revoke" }).click();
      const dialog = page.getByRole("dialog");
      await visible(dialog.getByText("vera"));
      await dialog.getByRole("button", { name: "Revoke" }).click();
      await viewer.page.getByText("Your session has ended.").waitFor({ timeout: 2_000 });
      await close(viewer);
      await gone(page.locator("tr", { hasText: "vera" }));
    });
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
      await visible(page.getByText("Nothing matches."));
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
