import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { gone, visible, withPage } from "./browser.ts";
import { TestServer, until } from "./server.ts";

describe("calls", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ config: `[tools.slow]\nbuiltin = "flaky"\nretry = { attempts = 1 }\nconfirm = true\n` })));
  after(() => server.stop());

  test("an empty list says how to fill it; calls appear by themselves, and a pause counts what came since", async () => {
    await withPage(server, "/ui/calls", async ({ page }) => {
      await visible(page.getByText("toolhub call TOOL"));
      const rows = page.locator(".call-list .c-tool a");
      await server.call("calculator", { expression: "1+1" }, "live");
      await visible(rows.getByText("calculator"));
      await page.getByRole("button", { name: "Pause" }).click();
      await visible(page.getByText("Paused"));
      for (let call = 0; call < 3; call++) await server.call("clock", {}, "live");
      await visible(page.getByText("3 new"));
      assert.equal(await rows.count(), 1);
      await page.keyboard.press("p");
      await visible(rows.getByText("clock"));
      await until("all calls", async () => (await rows.count()) === 4);
      assert.equal(await page.getByText("3 new").count(), 0);
      await visible(page.getByText("The oldest recorded call."));
    });
  });

  test("filters stand in the address, come back after a reload, and what is not valid is said", async () => {
    await server.call("calculator", { expression: "1/0" }, "filters");
    await withPage(server, "/ui/calls", async ({ page }) => {
      await page.getByLabel("Status", { exact: true }).selectOption("error");
      await visible(page.locator(".call-list .c-error", { hasText: "tool_error" }));
      await page.getByLabel("Tool", { exact: true }).fill("calculator");
      await page.keyboard.press("Enter");
      await page.getByLabel("Started", { exact: true }).selectOption("1h");
      await until("the address to have the filters", () => /tool=calculator/.test(page.url()) && /status=error/.test(page.url()) && /since=1h/.test(page.url()));
      await page.reload();
      await visible(page.locator(".call-list .c-error", { hasText: "tool_error" }));
      assert.equal(await page.getByLabel("Tool", { exact: true }).inputValue(), "calculator");
      assert.equal(await page.locator(".call-list .c-tool a").count(), 1);
      await page.getByLabel("Started", { exact: true }).selectOption("between");
      await page.getByLabel("From, in the time zone of this browser").fill("2020-01-01T10:00");
      await page.getByLabel("To", { exact: true }).fill("2020-01-02T10:00");
      await page.getByLabel("Tool", { exact: true }).click();
      await visible(page.getByText("No recorded call matches this filter."));
      await page.getByLabel("Thread id").fill("not a thread");
      await page.keyboard.press("Enter");
      await visible(page.getByRole("alert").getByText("is not a valid thread id"));
      await page.getByRole("button", { name: "Clear filters" }).click();
      await visible(page.locator(".call-list .c-tool a").getByText("clock"));
    });
  });

  test("older calls are added on demand, and the list stays as it was meanwhile", async () => {
    for (let call = 0; call < 120; call++) await server.call("clock", {}, "many");
    await withPage(server, "/ui/calls?thread=many", async ({ page }) => {
      const table = page.getByRole("table", { name: "Calls" });
      await until("a hundred rows", async () => (await table.getAttribute("aria-rowcount")) === "101");
      await page.getByRole("button", { name: "Older calls" }).click();
      await until("all rows", async () => (await table.getAttribute("aria-rowcount")) === "121");
      await visible(page.getByText("Paused"));
      await server.call("clock", {}, "many");
      await visible(page.getByText("1 new", { exact: false }));
      assert.equal(await table.getAttribute("aria-rowcount"), "121");
    });
  });

  test("a call shows its arguments and result, or its error for operators and for the model, and leads on", async () => {
    const { id } = await server.call("calculator", { expression: "2+3*4" }, "detail");
    await server.call("calculator", { expression: "5/0" }, "detail");
    await withPage(server, "/ui/calls?thread=detail", async ({ page, context }) => {
      await visible(page.locator(".call-list"));
      await page.keyboard.press("j");
      await page.keyboard.press("Enter");
      await visible(page.locator(".failure").getByText("it has no finite value").first());
      await visible(page.locator(".failure").getByText("What the model reads"));
      await visible(page.getByText("The same call will fail again · does not count as a failure of the tool"));
      const [problem] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "tool_error" }).click()]);
      await visible(problem.getByText("The tool itself failed or refused the call"));
      await problem.close();
      await page.getByRole("main").getByRole("link", { name: "Calls", exact: true }).click();
      assert.match(page.url(), /thread=detail/);
      await page.locator(".call-list .c-tool a").last().click();
      await visible(page.locator("#call").getByText("2+3*4"));
      await visible(page.getByText("The record has no output."));
      assert.ok(page.url().includes(id));
      await page.getByRole("link", { name: "calls of this thread" }).click();
      await until("both calls of the thread", async () => (await page.locator(".call-list .c-tool a").count()) === 2);
      const { id: note } = await server.call("notes", { add: "milk" }, "detail");
      await page.goto(`${server.url}/ui/calls/${note}`);
      await visible(page.locator("#call .card", { hasText: "Output" }).locator(".block"));
    });
  });

  test("on a narrow page each step of a call has its name beside its error", async () => {
    const { id } = await server.call("calculator", { expression: "5/0" }, "narrow");
    await withPage(server, `/ui/calls/${id}`, async ({ page }) => {
      const names = page.locator(".waterfall [role=cell].c-step");
      await visible(names);
      const cut = await names.evaluateAll((cells) => cells.filter((cell) => cell.clientWidth < cell.scrollWidth).map((cell) => cell.textContent));
      assert.deepEqual(cut, []);
    }, { viewport: { width: 390, height: 844 } });
  });

  test("the start of a call or refusal of another day is shown with its time", async () => {
    await server.call("clock", {}, "old");
    await server.call("calculator", { expr: "1" }, "old");
    for (const path of ["/ui/calls?thread=old", "/ui/calls?view=refusals&thread=old"]) {
      await withPage(server, "/ui/", async ({ page }) => {
        await page.route(/\/api\/v1\/(calls|refusals)\?/, async (route) => {
          const response = await route.fetch();
          await route.fulfill({ response, body: (await response.text()).replaceAll(/"(startedAt|at)":"\d{4}-\d\d-\d\d/g, '"$1":"2025-12-31') });
        });
        await page.goto(server.url + path);
        const cell = page.locator("[role=cell]:is(.c-started, .c-when)").first();
        await visible(cell.getByText(/2025-12-31 \d\d:\d\d:\d\d/));
        assert.ok(await cell.evaluate((one) => one.scrollWidth <= one.clientWidth), path);
      });
    }
  });

  test("a call that waits is followed until it has ended, and leads to its approval", async () => {
    const approval = await server.ask("dangerous", { folder: "/tmp/waits" }, "waits");
    const { items } = await server.api("GET", "/api/v1/calls?threadId=waits");
    await withPage(server, `/ui/calls/${items[0].id}`, async ({ page }) => {
      await visible(page.locator("h1 .badge", { hasText: "awaiting approval" }));
      await page.getByRole("link", { name: approval }).click();
      await visible(page.getByRole("button", { name: "Deny…" }));
      await page.goBack();
      await visible(page.locator("h1 .badge", { hasText: "awaiting approval" }));
      await page.getByRole("button", { name: "Cancel the call" }).click();
      await visible(page.locator("h1 .badge", { hasText: "cancelled" }));
      await gone(page.getByRole("button", { name: "Cancel the call" }));
    });
  });

  test("refused calls have a list of their own with a reason each", async () => {
    await server.call("calculator", { expr: "1" }, "refused");
    await server.call("no-such-tool", {}, "refused");
    await withPage(server, "/ui/calls", async ({ page }) => {
      await page.getByRole("link", { name: "Refusals" }).click();
      const row = (code: string) => page.locator(".refusal-list .long-row", { hasText: code });
      await visible(row("arguments_invalid").getByText("rename it to `expression`?"));
      await visible(row("tool_not_found"));
      await page.getByLabel("Error", { exact: true }).selectOption("arguments_invalid");
      await gone(row("tool_not_found"));
      assert.match(page.url(), /view=refusals/);
      await server.call("calculator", { more: "1" }, "later");
      await visible(row("later"));
    });
  });

  test("an id without a record says that records are deleted, and a record that goes stays readable", async () => {
    await withPage(server, "/ui/calls/call_00000000-0000-7000-8000-000000000000", async ({ page }) => {
      await visible(page.getByText("store.retention.calls"));
      await page.getByRole("main").getByRole("link", { name: "Refused calls" }).click();
      await visible(page.getByRole("heading", { name: "Refused calls" }));
    });
    await server.ask("dangerous", { folder: "/tmp/goes" }, "goes");
    const { items } = await server.api("GET", "/api/v1/calls?threadId=goes");
    await withPage(server, `/ui/calls/${items[0].id}`, async ({ page }) => {
      await visible(page.getByText("/tmp/goes"));
      await page.route("**/api/v1/calls/call_*", (route) => route.fulfill({ status: 404, json: { type: "", title: "", status: 404, code: "call_not_found", detail: "gone" } }));
      await visible(page.getByText("was deleted meanwhile"));
      await visible(page.getByText("/tmp/goes"));
    });
  });
});
