import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { close, gone, openAs, visible, withPage } from "./browser.ts";
import { place, richConfig } from "./pages.ts";
import { TestServer, until } from "./server.ts";

/** Reports progress, then waits for a file; its result has a list that is too long for a model. */
const slowly = `
const { existsSync } = require("node:fs");
const say = (message) => process.stdout.write(JSON.stringify(message) + "\\n");
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id } = JSON.parse(line);
  say({ id, progress: { message: "half of it", fraction: 0.5 } });
  const timer = setInterval(() => {
    if (!existsSync("go")) return;
    clearInterval(timer);
    say({ id, result: { a: { "<b>k</b>": [1, "two", { deep: [{ er: null }] }] }, many: Array(300).fill("x") } });
  }, 20);
});
`;

const moreConfig = `
[tools.slowly]
kind = "stateful"
command = ${JSON.stringify(process.execPath)}
args = ["-e", ${JSON.stringify(slowly)}]
annotations = { read_only = true }
text_limit = 1000
rate_limit = { requests = 100, per = "1m" }
[tools.writes]
command = "cat"
annotations = { destructive = false }
[tools.formats]
command = "cat"
annotations = { read_only = true }
[tools.formats.parameters]
type = "object"
[tools.formats.parameters.properties]
day = { type = "string", format = "date" }
at = { type = "string", format = "date-time" }
mail = { type = "string", format = "email" }
note = { type = ["string", "null"] }
big = { type = "integer" }
box = { type = "object", properties = { a = { type = "integer" } } }
`;

const manyConfig = `
[tools.many]
command = "cat"
[tools.many.parameters]
type = "object"
[tools.many.parameters.properties]
${Array.from({ length: 320 }, (_, index) => `m${String(index).padStart(3, "0")} = { type = "string" }`).join("\n")}
`;

describe("try", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ config: richConfig + moreConfig + manyConfig })));
  after(() => server.stop());

  test("a tool is run from its form, and the form and the JSON show one value", async () => {
    await withPage(server, "/ui/tools/calculator", async ({ page }) => {
      await page.getByRole("link", { name: "Try it" }).click();
      await place(page, "/expression").fill("6*7");
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.locator(".result .block").getByText("42"));
      await visible(page.locator(".result .waterfall .long-row", { hasText: "Attempt 1" }));
      await page.getByRole("button", { name: "JSON", exact: true }).click();
      assert.match(await place(page, "").inputValue(), /"expression": "6\*7"/);
      await place(page, "").fill('{"expression": "1/');
      await visible(page.getByText("This is not valid JSON."));
      await until("Run to be disabled", () => page.getByRole("button", { name: "Run", exact: true }).isDisabled());
      await place(page, "").fill('{"expression": "1/0"}');
      await page.getByRole("button", { name: "Form", exact: true }).click();
      assert.equal(await place(page, "/expression").inputValue(), "1/0");
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.locator(".result .failure").getByText("it has no finite value").first());
      await visible(page.locator(".result").getByText("What the model reads"));
    });
  });

  test("nested, referenced, optional and chosen values are given, and wrong ones are said at their field", async () => {
    await withPage(server, "/ui/tools/order?tab=try", async ({ page }) => {
      const group = (name: string) => page.locator("fieldset.field", { has: page.locator("legend > code", { hasText: new RegExp(`^${name}$`) }) });
      await place(page, "/customer").fill("A");
      await place(page, "/count").fill("1.5");
      await visible(page.getByText("This is not a whole number."));
      await until("Run to be disabled", () => page.getByRole("button", { name: "Run", exact: true }).isDisabled());
      await place(page, "/count").fill("2");
      await group("lines").getByRole("button", { name: "Add", exact: true }).click();
      await page.getByRole("button", { name: "Add an item" }).click();
      await place(page, "/lines/0/sku").fill("tea");
      await place(page, "/lines/0/price").fill("3.50");
      await group("to").getByRole("button", { name: "Add", exact: true }).first().click();
      await place(page, "/to/city").fill("Oslo");
      await place(page, "/speed").selectOption({ label: "fast" });
      await place(page, "/pay").selectOption({ label: "Invoice" });
      await visible(page.getByLabel("/pay", { exact: true }));
      await place(page, "/pay").selectOption({ label: "Card" });
      await place(page, "/pay/number").fill("4242");
      await place(page, "/extra").fill('{"gift": true}');
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.getByRole("alert").getByText("1 argument is wrong"));
      assert.equal(await place(page, "/customer").getAttribute("aria-invalid"), "true");
      await place(page, "/customer").fill("Ada");
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.locator(".result .badge", { hasText: "success" }));
      const { items } = await server.api("GET", "/api/v1/calls?tool=order");
      const sent = (await server.api("GET", `/api/v1/calls/${items[0].id}`)).arguments;
      assert.deepEqual(sent, {
        customer: "Ada", count: 2, express: false, lines: [{ sku: "tea", price: 3.5 }], to: { city: "Oslo" }, speed: "fast", pay: { type: "card", number: "4242" }, extra: { gift: true },
      });
    });
  });

  test("a destructive tool asks before it runs, waits for its approval, and shows the result", async () => {
    await withPage(server, "/ui/tools/dangerous?tab=try", async ({ page }) => {
      await place(page, "/folder").fill("/tmp/try");
      await page.getByLabel("Thread (optional)").fill("trying");
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
      await gone(page.getByRole("dialog"));
      assert.equal((await server.api("GET", "/api/v1/calls?threadId=trying")).items?.length ?? 0, 0);
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await page.getByRole("button", { name: "Run it" }).click();
      await visible(page.getByText("The call waits for an approval:"));
      const { items } = await server.api("GET", "/api/v1/approvals?state=pending");
      await server.api("POST", `/api/v1/approvals/${items[0].id}`, { outcome: "proceed_once" });
      await visible(page.locator(".result .badge", { hasText: "success" }));
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await page.getByRole("button", { name: "Run it" }).click();
      await visible(page.getByText("The call waits for an approval:"));
      await page.locator(".result").getByRole("button", { name: "Cancel" }).click();
      await visible(page.locator(".result .badge", { hasText: "cancelled" }));
    });
  });

  test("a recorded call is tried again with its arguments; masked ones must be entered again", async () => {
    const { id } = await server.call("order", { customer: "Ada", lines: [], extra: { password: "hunter2" } });
    await withPage(server, `/ui/calls/${id}`, async ({ page }) => {
      await page.getByRole("link", { name: "Try again" }).click();
      await until("the arguments", async () => (await place(page, "/customer").inputValue()) === "Ada");
      await visible(page.locator(".callout", { hasText: "must be entered again" }).getByText("/extra/password"));
      assert.equal((await place(page, "/extra").inputValue()).includes("password"), false);
    });
  });

  test("a refused call says why, and a key without the scope reads which one it lacks", async () => {
    await withPage(server, "/ui/tools/report?tab=try&thread=new", async ({ page }) => {
      await place(page, "/title").fill("Weather");
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.getByRole("alert").getByRole("link", { name: "dependency_not_met" }));
    });
    const locked = await TestServer.start({ keys: true });
    const { key } = await locked.key("viewer", ["tools:read"]);
    const opened = await openAs(locked, key, "/ui/tools/calculator?tab=try");
    await visible(opened.page.locator(".callout", { hasText: "tools:call" }));
    assert.equal(await opened.page.getByRole("button", { name: "Run", exact: true }).count(), 0);
    await close(opened);
    await locked.stop();
  });

  test("a dry run says what would happen, and nothing runs", async () => {
    await withPage(server, "/ui/tools/order?tab=try", async ({ page }) => {
      const verdict = page.locator(".result .callout");
      await place(page, "/customer").fill("A");
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(verdict.getByText("It would be refused."));
      assert.equal(await place(page, "/customer").getAttribute("aria-invalid"), "true");
      await place(page, "/customer").fill("Ada");
      await visible(verdict.getByText("The arguments have changed since."));
      await page.locator("fieldset", { has: page.locator("legend", { hasText: "lines" }) }).getByRole("button", { name: "Add", exact: true }).click();
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(verdict.getByText("It would run now."));
      await page.goto(`${server.url}/ui/tools/dangerous?tab=try`);
      await place(page, "/folder").fill("/tmp/dry");
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(verdict.getByText("It would wait for an approval."));
      await visible(page.locator(".result .fact", { hasText: "Rule" }).getByText("asks"));
      await page.goto(`${server.url}/ui/tools/report?tab=try&thread=dry`);
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(page.locator(".result .fact", { hasText: "Must run before" }).getByRole("link", { name: "clock" }));
      assert.equal((await server.api("GET", "/api/v1/calls?tool=report")).items.filter((call: any) => call.threadId === "dry").length, 0);
    });
  });

  test("progress is shown, and a result as a tree, as text and whole, with what was too long to download", async () => {
    await withPage(server, "/ui/tools/slowly?tab=try", async ({ page }) => {
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(page.locator(".result .fact", { hasText: "100 per" }));
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.locator(".progress").getByText("half of it"));
      assert.equal(await page.locator(".progress progress").getAttribute("value"), "0.5");
      server.write("go", "");
      const tree = page.locator(".tree");
      await visible(tree.getByText("<b>k</b>"));
      assert.equal(await tree.getByText("er", { exact: true }).count(), 0);
      await tree.locator("summary", { hasText: "deep" }).focus();
      await page.keyboard.press("Enter");
      await tree.locator("summary", { hasText: /^0/ }).focus();
      await page.keyboard.press("Enter");
      await visible(tree.getByText("er", { exact: true }));
      await tree.locator("summary", { hasText: "many" }).click();
      await until("the first hundred", async () => (await tree.getByText('"x"').count()) === 100);
      await tree.getByRole("button", { name: "Show more (200 left)" }).click();
      await until("all of them", async () => (await tree.getByText('"x"').count()) === 300);
      await page.getByRole("button", { name: "Text", exact: true }).click();
      await visible(page.locator(".result pre").getByText('"two"'));
      const loading = page.waitForEvent("download");
      await page.getByRole("link", { name: "Download" }).click();
      assert.match((await loading).suggestedFilename(), /^art_.*\.(txt|json)$/);
    });
  });

  test("null, JSON at a place, and texts of formats are given", async () => {
    await withPage(server, "/ui/tools/formats?tab=try", async ({ page }) => {
      const sent = async () => {
        await page.getByRole("button", { name: "JSON", exact: true }).first().click();
        const text = await place(page, "").inputValue();
        await page.getByRole("button", { name: "Form", exact: true }).click();
        return JSON.parse(text || "{}");
      };
      await place(page, "/day").fill("tomorrow");
      await page.locator(".picked", { has: place(page, "/at") }).locator("input[type=datetime-local]").evaluate((picker: HTMLInputElement) => {
        picker.value = "2026-01-31T10:30";
        picker.dispatchEvent(new Event("input", { bubbles: true }));
      });
      assert.equal(new Date(await place(page, "/at").inputValue()).getTime(), await page.evaluate(() => new Date("2026-01-31T10:30").getTime()));
      assert.equal(await place(page, "/mail").getAttribute("inputmode"), "email");
      await page.getByRole("button", { name: "null: note" }).click();
      await page.getByRole("button", { name: "JSON: box" }).click();
      await place(page, "/box").fill('{"a": 1, "b": 2}');
      const { at: _at, ...rest } = await sent();
      assert.deepEqual(rest, { day: "tomorrow", note: null, box: { a: 1, b: 2 } });
      assert.equal(await place(page, "/day").inputValue(), "tomorrow");
      await page.getByRole("button", { name: "null: note" }).click();
      await place(page, "/box").fill('{"a": 7}');
      assert.equal((await sent()).note, undefined);
      assert.equal(await place(page, "/box/a").inputValue(), "7");
    });
  });

  test("a large number is one number in the form, in the JSON, in the call, and when it is tried again", async () => {
    const large = "9007199254740993";
    await withPage(server, "/ui/tools/formats?tab=try", async ({ page }) => {
      await place(page, "/big").fill(large);
      await page.getByRole("button", { name: "JSON", exact: true }).first().click();
      assert.match(await place(page, "").inputValue(), /"big": 9007199254740993\b/);
      await place(page, "").fill(`{"big": ${large}, "box": {"a": ${large}}}`);
      await page.getByRole("button", { name: "Form", exact: true }).click();
      assert.equal(await place(page, "/big").inputValue(), large);
      assert.equal(await place(page, "/box/a").inputValue(), large);
      await page.getByRole("button", { name: "Run", exact: true }).click();
      await visible(page.locator(".result .tree").getByText(large).first());
      await page.getByRole("link", { name: "record of the call" }).click();
      await visible(page.locator("#call pre").getByText(`"big": ${large}`).first());
      await page.getByRole("link", { name: "Try again" }).click();
      await until("the arguments", async () => (await place(page, "/big").inputValue()) === large);
    });
  });

  test("what was typed and the call that runs are there after another part was looked at", async () => {
    await withPage(server, "/ui/tools/dangerous?tab=try", async ({ page }) => {
      const run = async () => {
        await page.getByRole("button", { name: "Run", exact: true }).click();
        await page.getByRole("button", { name: "Run it" }).click();
      };
      await place(page, "/folder").fill("/tmp/first");
      await run();
      await visible(page.getByText("The call waits for an approval:"));
      await page.getByRole("link", { name: "Schema" }).click();
      await gone(page.locator(".try"));
      await page.getByRole("link", { name: "Try it" }).click();
      assert.equal(await place(page, "/folder").inputValue(), "/tmp/first");
      await visible(page.getByText("The call waits for an approval:"));
      // Neither a dry run nor a second call takes the first one away.
      await page.getByRole("button", { name: "Dry run" }).click();
      await visible(page.locator("#forecast"));
      const cancel = page.locator(".result").getByRole("button", { name: "Cancel" });
      assert.equal(await cancel.count(), 1);
      await place(page, "/folder").fill("/tmp/second");
      await run();
      await until("both calls", async () => (await cancel.count()) === 2);
      await cancel.first().click();
      await visible(page.locator(".result .badge", { hasText: "cancelled" }));
      await cancel.first().click();
      await until("both ends", async () => (await cancel.count()) === 0);
      await page.getByRole("button", { name: "Clear", exact: true }).click();
      assert.equal(await place(page, "/folder").inputValue(), "");
    });
  });

  test("a call whose answer was lost is the same call when it is run again", async () => {
    await withPage(server, "/ui/tools/writes?tab=try", async ({ page }) => {
      const keys: string[] = [];
      await page.route("**/api/v1/tools/writes/calls", async (route) => {
        keys.push(route.request().headers()["idempotency-key"] ?? "");
        if (keys.length > 1) return route.continue();
        await route.fetch();
        await route.abort();
      });
      const run = page.getByRole("button", { name: "Run", exact: true });
      await run.click();
      await visible(page.getByRole("alert").getByText("The server did not answer."));
      const calls = async () => (await server.api("GET", "/api/v1/calls?tool=writes")).items;
      await until("the first call to end", async () => (await calls())[0]?.status === "success");
      await run.click();
      await visible(page.locator(".result .badge"));
      assert.equal((await calls()).length, 1);
      await run.click();
      await until("a third request", () => keys.length === 3);
      assert.ok(keys[0]);
      assert.equal(keys[0], keys[1]);
      assert.notEqual(keys[1], keys[2]);
    });
  });

  test("members beyond the first three hundred are counted and shown on demand", async () => {
    await withPage(server, "/ui/tools/many?tab=try", async ({ page }) => {
      await visible(place(page, "/m000"));
      assert.equal(await place(page, "/m319").count(), 0);
      await page.getByRole("button", { name: "Show more (20 left)" }).click();
      await place(page, "/m319").fill("last");
      await page.getByRole("link", { name: "Schema" }).click();
      await page.getByRole("button", { name: "Show more (20 left)" }).click();
      await visible(page.getByRole("rowheader", { name: "m319", exact: true }));
    });
  });
});
