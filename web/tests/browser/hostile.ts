import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { visible, withPage } from "./browser.ts";
import { changeDefinition, mcpConfig } from "./pages.ts";
import { TestServer } from "./server.ts";

const script = `<img src=x onerror="alert(1)"><script>alert(2)</script>`;
const link = "javascript:alert(3) https://evil.example/x";
const bidi = "safe\u202Etxt.exe\u2066 \u200Bhidden";
const ansi = "\u001b[31mred\u001b[0m\u0007";
const hostile = `${script} ${link} ${bidi} ${ansi}`;

/** TOML knows the escapes of JSON; invisible characters must be escaped. */
const quoted = (text: string) => JSON.stringify(text).replace(/[\u007f-\uffff]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

describe("hostile", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => {
    const config = `
  [tools.mirror]
  command = "cat"
  description = ${quoted(hostile)}
  confirm = true
  tags = [${quoted("<b>tag</b>")}]
  [tools.mirror.parameters]
  type = "object"
  [tools.mirror.parameters.properties.${quoted("<i>name</i>")}]
  type = "string"
  description = ${quoted(hostile)}
  [tools.mirror.parameters.properties.pick]
  enum = [${quoted(`${bidi}\u3164\ufe01`)}, "plain"]
  [tools.mirror.parameters.properties.kind]
  oneOf = [{ title = ${quoted(`${bidi}\u3164\ufe01`)}, type = "string" }, { title = "other", type = "integer" }]
  [tools.gate]
  command = "cat"
  depends_on = ["mirror"]
  [tools.broken]
  command = "sh"
  args = ["-c", "cat >&2; exit 1"]
  [tools.plain]
  command = "cat"
  description = ${quoted("x".repeat(100_000))}
  ${mcpConfig}
  `;
    server = await TestServer.start({ config });
    await changeDefinition(server, hostile);
  });
  after(() => server.stop());

  const paths = (approval: string, call: string, failed: string, run: string) => [
    "/ui/",
    "/ui/tools",
    "/ui/tools/mirror",
    "/ui/tools/mirror?tab=schema",
    "/ui/tools/mirror?tab=try",
    "/ui/tools/plain",
    "/ui/mcp-servers/files",
    `/ui/mcp-servers/${encodeURIComponent(script)}`,
    `/ui/graph?tool=${encodeURIComponent(hostile)}`,
    `/ui/graph?thread=${encodeURIComponent(script)}`,
    "/ui/graph?tool=gate&view=list",
    "/ui/nodes",
    "/ui/tools/plain?tab=schema",
    `/ui/calls/${call}`,
    `/ui/calls/${failed}`,
    `/ui/tools/plain?tab=try&call=${call}`,
    "/ui/calls",
    "/ui/calls?view=refusals",
    `/ui/calls?thread=${encodeURIComponent(hostile)}`,
    `/ui/calls/${encodeURIComponent(script)}`,
    `/ui/approvals/${approval}`,
    "/ui/approvals?view=answered",
    `/ui/tools/${encodeURIComponent(script)}`,
    `/ui/approvals/${encodeURIComponent(hostile.slice(0, 90))}`,
    `/ui/${encodeURIComponent(script)}`,
    "/ui/threads/h1",
    `/ui/threads/${encodeURIComponent("h\u3164\u202e1")}`,
    "/ui/threads/talk",
    "/ui/threads?view=runs",
    `/ui/threads?q=${encodeURIComponent(hostile)}`,
    `/ui/threads/${encodeURIComponent(script)}`,
    `/ui/runs/${encodeURIComponent(script)}`,
    `/ui/runs/${run}`,
    "/ui/state/h1%2Fplanted",
    `/ui/state/${encodeURIComponent(hostile)}`,
    `/ui/state?thread=${encodeURIComponent(script)}`,
    "/ui/settings",
    "/ui/settings?view=keys",
    "/ui/settings?view=audit",
  ];

  test("planted scripts, links, escapes and bidi characters are text", async () => {
    const approval = await server.ask("mirror", { "<i>name</i>": hostile, [`${link} ${bidi}`]: { deep: [hostile] } }, "h1");
    const denied = await server.ask("mirror", { "<i>name</i>": hostile }, "h2");
    await server.api("POST", `/api/v1/approvals/${denied}`, { outcome: "cancel", reason: hostile });
    await server.api("PUT", "/api/v1/tools/plain/status", { status: "maintenance", reason: hostile });
    await server.api("POST", "/api/v1/tools/plain/reset");
    const { id: call } = await server.call("plain", { text: hostile, [hostile]: { [script]: [hostile] } }, "h1");
    const { id: failed } = await server.call("broken", { text: hostile }, "h1");
    await server.api("PUT", "/api/v1/tools/notes/status", { status: "maintenance", reason: hostile });
    const { runId: run } = await server.api("POST", "/api/v1/threads/talk/messages", { content: `remember ${hostile}` }, { prefer: "wait=5" });
    await server.api("PUT", "/api/v1/state/contexts/h1%2Fplanted/business", { data: { [hostile]: hostile } });
    await server.api("POST", "/api/v1/keys", { name: "<b>key</b>", scopes: ["tools:read"] });
    await server.api("GET", `/api/v1/${encodeURIComponent(script)}`);
    await withPage(server, "/ui/", async ({ page, files, problems }) => {
      for (const path of paths(approval, call, failed, run)) {
        await page.goto(server.url + path);
        await visible(page.locator("main .page"));
        await page.waitForFunction(() => !document.querySelector(".loading"));
        const planted = await page.evaluate(() => document.querySelectorAll("main img, main script, main i, main b, main a[href^='javascript'], main a[href*='evil']").length);
        assert.equal(planted, 0, path);
        // Nothing reorders or hides text: each such character is shown by its code.
        const hidden = await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069\u200b\u001b\u0007\u3164\ufe01]/.test(`${document.title} ${document.body.innerText} ${[...document.querySelectorAll("option")].map((one) => one.text)}`));
        assert.equal(hidden, false, path);
      }
      await page.goto(`${server.url}/ui/tools/plain?tab=try&call=${call}`);
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await page.getByRole("button", { name: "Run it" }).click();
      await visible(page.locator(".tree .mark", { hasText: "U+202E" }));
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(page.locator("#forecast"));
      assert.equal(await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069\u200b\u001b\u0007]/.test(document.body.innerText)), false);
      await page.goto(`${server.url}/ui/approvals/${approval}`);
      await visible(page.locator(".mark", { hasText: "U+202E" }));
      await visible(page.locator(".mark", { hasText: "ESC" }));
      assert.deepEqual(problems, []);
      assert.ok(files.every((url) => url.startsWith(server.url)));
    });
  });

  test("a line of a megabyte is shown in part, and the page stays quick", async () => {
    const huge = "A".repeat(1_000_000);
    const { id: call } = await server.call("plain", { text: huge }, "h3");
    const approval = await server.ask("mirror", { "<i>name</i>": huge }, "h3");
    await withPage(server, `/ui/calls/${call}`, async ({ page }) => {
      await visible(page.locator("#call").getByRole("button", { name: /Show more/ }).first());
      await page.goto(`${server.url}/ui/approvals/${approval}`);
      await visible(page.getByRole("button", { name: "Open (1000000 characters)" }));
      await page.getByRole("button", { name: /^Open/ }).click();
      await visible(page.getByRole("button", { name: "Show more of it" }));
      assert.ok((await page.evaluate(() => document.body.innerText.length)) < 20_000);
      await page.getByRole("button", { name: "Edit…" }).click();
      await page.getByRole("button", { name: "JSON", exact: true }).first().click();
      await visible(page.getByLabel("Arguments as JSON"));
    });
  });
});
