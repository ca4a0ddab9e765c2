import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { gone, visible, withPage } from "./browser.ts";
import { place } from "./pages.ts";
import { TestServer, until } from "./server.ts";

/** Takes numbers, and more. */
const exactConfig = `
[tools.exact]
command = "cat"
confirm = true
[tools.exact.parameters]
type = "object"
required = ["id"]
properties = { id = { type = "integer" }, ratio = { type = "number" }, name = { type = "string" } }
`;

/** A number as it is written, which numbers of JavaScript cannot hold. */
const written = (text: string): unknown => (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(text);
const large = "9007199254740993";

describe("approvals", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ config: `[tools.brief]\nbuiltin = "dangerous"\napproval_timeout = "6s"\n${exactConfig}` })));
  after(() => server.stop());

  const state = async (id: string): Promise<string> => (await server.api("GET", `/api/v1/approvals/${id}`)).state;
  const ended = (call: string) => until("the call to end", async () => ["success", "cancelled", "error"].includes((await server.api("GET", `/api/v1/calls/${call}`)).status));

  test("a call is seen, counted in the title, and allowed", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      await visible(page.getByText("Nothing needs your attention."));
      const id = await server.ask("dangerous", { folder: "/tmp/a" }, "t1");
      await until("the title to count", async () => (await page.title()).startsWith("(1) "));
      await page.getByRole("link", { name: "Decide" }).click();
      await visible(page.getByText("the tool requires approval for every call"));
      await visible(page.getByText("says the owner's config or code"));
      await visible(page.locator(".argument", { hasText: "folder" }).getByText("/tmp/a"));
      await page.getByRole("button", { name: "Allow once" }).click();
      await visible(page.locator("[data-outcome]"));
      await until("the approval to be used", async () => (await state(id)) === "used");
      await visible(page.locator("[data-outcome=used]", { hasText: "local" }));
      await until("the title to be plain", async () => !(await page.title()).startsWith("("));
    });
  });

  test("arguments are edited, with the difference shown and the server's corrections", async () => {
    const id = await server.ask("dangerous", { folder: "/tmp/b" }, "t1");
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      await page.getByRole("button", { name: "Edit…" }).click();
      await place(page, "/folder").fill("/tmp/form");
      await visible(page.locator(".diff .added", { hasText: "/tmp/form" }));
      await page.getByRole("button", { name: "JSON", exact: true }).click();
      const field = page.getByLabel("Arguments as JSON");
      assert.deepEqual(JSON.parse(await field.inputValue()), { folder: "/tmp/form" });
      await field.fill("[]");
      await visible(page.getByText("This is not a JSON object."));
      await field.fill('{\n  "folder": x\n}');
      await visible(page.getByRole("button", { name: "Line 2, column 13" }));
      const allow = page.getByRole("button", { name: "Allow with these arguments" });
      assert.ok(await allow.isDisabled());
      assert.ok(await page.getByRole("button", { name: "Form", exact: true }).isDisabled());
      await field.fill('{"folder": 7}');
      await allow.click();
      await visible(page.locator(".error-text", { hasText: "/folder" }));
      await field.fill('{"folder": "/tmp/json"}');
      await page.getByRole("button", { name: "Form", exact: true }).click();
      assert.equal(await place(page, "/folder").inputValue(), "/tmp/json");
      await page.getByRole("button", { name: "JSON", exact: true }).click();
      await field.fill('{"folder": "/tmp/c"}');
      await visible(page.locator(".diff .removed", { hasText: "/tmp/b" }));
      await visible(page.locator(".diff .added", { hasText: "/tmp/c" }));
      await allow.click();
      await visible(page.getByText("with edited arguments"));
      const { callId } = await server.api("GET", `/api/v1/approvals/${id}`);
      await ended(callId);
      assert.equal((await server.api("GET", `/api/v1/calls/${callId}`)).arguments.folder, "/tmp/c");
    });
  });

  test("a call is denied with a reason", async () => {
    const id = await server.ask("dangerous", { folder: "/tmp/d" });
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      assert.equal(await page.getByRole("button", { name: "Always in this thread" }).count(), 0);
      await page.getByRole("button", { name: "Deny…" }).click();
      await page.getByLabel("Reason, for the model").fill("use the trash");
      await page.getByRole("button", { name: "Deny", exact: true }).click();
      await visible(page.locator("[data-outcome=denied]", { hasText: "use the trash" }));
      assert.equal(await state(id), "denied");
    });
  });

  test("an approval that times out says so in place, and keeps what was typed", async () => {
    const id = await server.ask("brief", { folder: "/tmp/e" }, "t2");
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      await page.getByRole("button", { name: "Edit…" }).click();
      await page.getByRole("button", { name: "JSON", exact: true }).click();
      await page.getByLabel("Arguments as JSON").fill('{"folder": "/half"}');
      await page.locator("[data-outcome=timed_out]").waitFor({ timeout: 20_000 });
      assert.equal(await page.getByLabel("Arguments as JSON").inputValue(), '{"folder": "/half"}');
      assert.ok(await page.getByRole("button", { name: "Allow with these arguments" }).isDisabled());
    });
  });

  test("an answer in a second browser shows in the first, and its draft stays", async () => {
    const id = await server.ask("dangerous", { folder: "/tmp/f" }, "t3");
    await withPage(server, `/ui/approvals/${id}`, async ({ page: first }) => {
      await first.getByRole("button", { name: "Deny…" }).click();
      await first.getByLabel("Reason, for the model").fill("wait for me");
      await withPage(server, `/ui/approvals/${id}`, async ({ page: second }) => {
        await second.getByRole("button", { name: "Always in this thread" }).click();
        await visible(second.locator("[data-outcome]"));
      });
      await visible(first.locator("[data-outcome]", { hasText: "always in this thread" }));
      assert.equal(await first.getByLabel("Reason, for the model").inputValue(), "wait for me");
      assert.ok(await first.getByRole("button", { name: "Deny", exact: true }).isDisabled());
      // The grant that this made.
      await first.getByRole("link", { name: "Grants" }).click();
      await visible(first.locator(".grant-list .long-row", { hasText: "t3" }));
      await first.getByRole("button", { name: "Revoke" }).click();
      await visible(first.getByText("No grants"));
      assert.deepEqual((await server.api("GET", "/api/v1/grants")).items, []);
    });
  });

  test("a cancelled call withdraws its approval in place", async () => {
    const id = await server.ask("dangerous", { folder: "/tmp/g" }, "t4");
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      await visible(page.getByRole("button", { name: "Allow once" }));
      const { callId } = await server.api("GET", `/api/v1/approvals/${id}`);
      await server.api("POST", `/api/v1/calls/${callId}/cancel`);
      await visible(page.locator("[data-outcome=withdrawn]"));
      await gone(page.getByRole("button", { name: "Allow once" }));
    });
  });

  test("a long value must be shown to its end before the call can be allowed", async () => {
    const id = await server.ask("dangerous", { folder: `/tmp/${"x".repeat(3000)}/end` }, "t5");
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      await visible(page.getByText("Open these long values"));
      assert.ok(await page.getByRole("button", { name: "Allow once" }).isDisabled());
      assert.ok(await page.getByRole("button", { name: "Always this tool" }).isDisabled());
      await page.getByRole("button", { name: /^Open \(/ }).click();
      await visible(page.getByText("/end"));
      assert.ok(await page.getByRole("button", { name: "Allow once" }).isEnabled());
    });
    const huge = await server.ask("dangerous", { folder: `${"A".repeat(60_000)} rm -rf /` }, "t5");
    await withPage(server, `/ui/approvals/${huge}`, async ({ page }) => {
      const allow = page.getByRole("button", { name: "Allow once" });
      await page.getByRole("button", { name: /^Open \(/ }).click();
      await visible(page.getByText("rm -rf /"));
      await visible(page.getByText("56009 of 60009 characters are not shown here"));
      assert.ok(await allow.isDisabled());
      const without = page.getByLabel("Allow without reading all of it");
      await without.check();
      assert.ok(await allow.isEnabled());
      await without.uncheck();
      assert.ok(await allow.isDisabled());
      await page.getByRole("button", { name: "Show more of it" }).click();
      assert.ok(await allow.isDisabled());
      await page.getByRole("button", { name: "Show more of it" }).click();
      await gone(without);
      assert.ok(await allow.isEnabled());
    });
  });

  test("numbers are shown and sent as they were written", async () => {
    const ask = () => server.ask("exact", { id: written(large), ratio: written("1.0"), name: "a" }, "t6");
    const sent = async (id: string): Promise<string> => {
      const { callId } = await server.api("GET", `/api/v1/approvals/${id}`);
      await ended(callId);
      return (await fetch(`${server.url}/api/v1/calls/${callId}`)).text();
    };
    const id = await ask();
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      await visible(page.locator(".argument", { hasText: "id" }).getByText(large, { exact: true }));
      await visible(page.locator(".argument", { hasText: "ratio" }).getByText("1.0", { exact: true }));
      await page.getByRole("button", { name: "Edit…" }).click();
      await page.getByRole("button", { name: "JSON", exact: true }).first().click();
      const field = page.getByLabel("Arguments as JSON");
      assert.match(await field.inputValue(), /"id": 9007199254740993,\s+"name": "a",\s+"ratio": 1\.0|"id": 9007199254740993,\s+"ratio": 1\.0/);
      await field.fill((await field.inputValue()).replace('"a"', '"b"'));
      await page.getByRole("button", { name: "Allow with these arguments" }).click();
      await visible(page.getByText("with edited arguments"));
    });
    assert.match(await sent(id), /"arguments":\{"id":9007199254740993,("name":"b",)?"ratio":1\.0/);
    const plain = await ask();
    await withPage(server, `/ui/approvals/${plain}`, async ({ page }) => {
      await page.getByRole("button", { name: "Allow once" }).click();
      await visible(page.locator("[data-outcome]"));
    });
    assert.match(await sent(plain), /"arguments":\{"id":9007199254740993/);
  });

  test("no difference is left out of an edit without a word", async () => {
    const members = (value: string) => Object.fromEntries(Array.from({ length: 600 }, (_, index) => [`m${index}`, value]));
    const id = await server.ask("exact", { id: 1, ...members("a") }, "t7");
    await withPage(server, `/ui/approvals/${id}`, async ({ page }) => {
      await page.getByRole("button", { name: "Edit…" }).click();
      await page.getByLabel("Arguments as JSON").fill(JSON.stringify({ id: 1, ...members("b"), long: `${"x".repeat(3000)}end` }));
      const lines = page.locator(".diff .added");
      assert.equal(await lines.count(), 0);
      await page.getByRole("button", { name: /^Show \d+ more lines$/ }).click();
      assert.equal(await lines.count(), 601);
      await page.getByRole("button", { name: /^Show more/ }).last().click();
      await visible(lines.getByText("xend"));
    });
  });
});
