import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, before, describe, test } from "node:test";
import { gone, open, close, openAs, visible, withPage } from "./browser.ts";
import { changeDefinition, mcpConfig } from "./pages.ts";
import { freePort, TestServer, until } from "./server.ts";

describe("servers", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ config: `${mcpConfig}[mcp_servers.lost]\ncommand = "/bin/false"\n` })));
  after(() => server.stop());

  test("an MCP server shows its tools and log, is restarted, and a changed tool is approved", async () => {
    await withPage(server, "/ui/mcp-servers", async ({ page }) => {
      await visible(page.locator("tr", { hasText: "files" }).getByText("connected", { exact: true }));
      await page.getByRole("link", { name: "files" }).click();
      await visible(page.getByText("test files 1.2.0"));
      await visible(page.getByRole("link", { name: "files__read_file" }));
      const log = page.locator(".log");
      await visible(log.getByText(/started as \d+/));
      const lines = await log.locator("div").count();
      await page.getByRole("button", { name: "Restart" }).click();
      await visible(page.getByText("The server is being connected again"));
      await until("a new line of the log", async () => (await log.locator("div").count()) > lines);
      await visible(page.getByText("connected", { exact: true }));
      await changeDefinition(server, "Reads a file, and sends it away.");
      await visible(page.locator(".diff .removed", { hasText: "Reads a file." }));
      await visible(page.locator(".diff .added", { hasText: "Reads a file, and sends it away." }));
      await visible(page.locator(".line .badge", { hasText: "waiting for approval" }));
      await page.getByRole("button", { name: "Approve…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
      assert.equal((await server.api("GET", "/api/v1/mcp-servers/files/changes")).items.length, 1);
      await page.getByRole("button", { name: "Approve…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Approve" }).click();
      await gone(page.locator(".changes"));
      await gone(page.locator(".line .badge", { hasText: "waiting for approval" }));
      assert.equal((await server.api("GET", "/api/v1/tools/files__read_file")).description, "Reads a file, and sends it away.");
    });
  });

  test("a program that ends says why and when it is tried again, and a wrong name leads to the right one", async () => {
    await withPage(server, "/ui/mcp-servers/lots", async ({ page }) => {
      await page.getByRole("link", { name: "lost" }).click();
      await visible(page.getByText("the server exited with code 1"));
      // Not while an attempt is under way; the page reads a server at least every five seconds.
      await page.locator(".countdown").waitFor({ timeout: 15_000 });
    });
  });

  test("a key that may only read has no buttons and no log", async () => {
    const locked = await TestServer.start({ keys: true, config: mcpConfig });
    const { key } = await locked.key("viewer", ["tools:read"]);
    await changeDefinition(locked, "Changed.");
    const opened = await openAs(locked, key, "/ui/mcp-servers/files");
    await visible(opened.page.locator(".diff .added", { hasText: "Changed." }));
    assert.equal(await opened.page.locator("main").getByRole("button").count(), 0);
    assert.equal(await opened.page.locator(".log").count(), 0);
    await close(opened);
    await locked.stop();
  });

  test("one node says so, and answers to a reload", async () => {
    await withPage(server, "/ui/nodes", async ({ page }) => {
      await visible(page.getByText("One node uses this store."));
      await visible(page.locator("tr[data-state=alive]", { hasText: "this node" }).getByText("does maintenance"));
      await page.getByRole("button", { name: "Reload all" }).click();
      await visible(page.getByText("has reloaded"));
    });
  });

  test("of two nodes on one Redis, one that is killed is shown as gone", async () => {
    await withRedis(async ({ store }) => {
      const [first, second] = [await TestServer.start({ store }), await TestServer.start({ store, config: `[tools.extra]\nbuiltin = "clock"\n` })];
      const opened = await open(first, "/ui/nodes");
      await until("both nodes", async () => (await opened.page.locator("tr[data-state=alive]").count()) === 2);
      await visible(opened.page.locator("tr", { hasText: String(second.port) }).getByText("other config"));
      await second.kill();
      await visible(opened.page.locator("tr[data-state=dead]", { hasText: String(second.port) }).getByText("gone"));
      // Neither has MCP servers.
      await opened.page.goto(`${first.url}/ui/mcp-servers`);
      await visible(opened.page.getByText("toolhub mcp add files"));
      await close(opened);
      await Promise.all([first.stop(), second.stop()]);
    });
  });

  test("without its store a page keeps what it knows in grey, and an action says what is wrong", async () => {
    await withRedis(async ({ store, end }) => {
      const server = await TestServer.start({ store });
      await server.api("PUT", "/api/v1/state/contexts/t1%2Fcart/business", { data: { tea: 1 } });
      await withPage(server, "/ui/state/t1%2Fcart", async ({ page }) => {
        await page.getByRole("button", { name: "Edit" }).click();
        await page.locator("textarea[name=data]").fill('{ "tea": 2 }');
        await end();
        await page.getByRole("button", { name: "Save" }).click();
        await visible(page.getByRole("alert").filter({ hasText: /store/ }));
        assert.equal(await page.locator("textarea[name=data]").inputValue(), '{ "tea": 2 }');
        await visible(page.locator(".fresh.old .as-of", { hasText: /store/ }));
      });
      await server.stop();
    });
  });

  /** A Redis of its own that writes each change before it answers. */
  async function withRedis(act: (redis: { store: string; end: () => Promise<void> }) => Promise<void>): Promise<void> {
    const [port, folder] = [await freePort(), mkdtempSync(`${tmpdir()}/toolhub-redis-`)];
    const redis = spawn("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes", "--appendfsync", "always"], { stdio: ["ignore", "pipe", "ignore"] });
    const exited = new Promise((done) => redis.once("exit", done));
    const end = async () => {
      redis.kill("SIGKILL");
      await exited;
    };
    try {
      await new Promise<void>((ready, fail) => {
        redis.once("error", fail);
        redis.stdout.on("data", (text) => String(text).includes("Ready to accept connections") && ready());
      });
      await act({ store: `[store]\nbackend = "redis"\nurl = "redis://127.0.0.1:${port}/0"\nnode_timeout = "2s"\n`, end });
    } finally {
      await end();
      rmSync(folder, { recursive: true, force: true });
    }
  }
});
