import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, before, describe, test } from "node:test";
import type { Locator } from "playwright-core";
import { close, gone, openAs, visible, withPage } from "./browser.ts";
import { binary, freePort, TestServer, until } from "./server.ts";

/** An agent whose calls are executed outside, and one that may use few tools. */
const agentsConfig = `
[agents.default]
[agents.outside]
tool_execution = "external"
external_deadline = "5m"
token_budget = 5000
[toolsets.few]
tools = ["clock", "calculator"]
[agents.small]
toolsets = ["few"]
`;

describe("threads", { concurrency: 1 }, () => {
  let server: TestServer;
  const folder = mkdtempSync(`${tmpdir()}/toolhub-threads-`);
  before(async () => {
    // A server of which each thread has a process of its own: its live instance.
    writeFileSync(`${folder}/toolhub.toml`, `[server]\nport = ${await freePort()}\n[tools.calculator]\nbuiltin = "calculator"\n`);
    const inner = `[mcp_servers.inner]\ncommand = ${JSON.stringify(binary)}\nargs = ["mcp", "serve", "--stdio", "--config", ${JSON.stringify(`${folder}/toolhub.toml`)}]\ninstance = "per_thread"\ntrust = true\n`;
    server = await TestServer.start({ config: agentsConfig + inner });
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const say = (thread: string, content: string, agent = "default"): Promise<any> => server.api("POST", `/api/v1/threads/${thread}/messages`, { content, agent }, { prefer: "wait=5" });

  test("an empty list has the command; a new conversation goes through an approval to its answer", async () => {
    await withPage(server, "/ui/threads", async ({ page }) => {
      await visible(page.getByText("toolhub chat"));
      await page.getByRole("button", { name: "New conversation" }).click();
      const box = page.getByLabel("Message", { exact: true });
      await box.fill("please");
      await page.keyboard.press("Shift+Enter");
      await box.pressSequentially("delete /tmp/old");
      assert.equal(await box.inputValue(), "please\ndelete /tmp/old");
      await page.keyboard.press("Enter");
      await visible(page.locator(".said.user", { hasText: "delete /tmp/old" }));
      await visible(page.locator(".open-call", { hasText: "/tmp/old" }));
      assert.equal(await box.inputValue(), "");
      await page.getByRole("button", { name: "Allow once" }).click();
      await visible(page.locator(".said.assistant .text", { hasText: "/tmp/old" }));
      await gone(page.locator(".said.now"));
      await page.locator(".done summary").click();
      await visible(page.locator(".done .block").first());
      // The list knows it, and so does the search dialog.
      const thread = new URL(page.url()).pathname.split("/").pop() ?? "";
      await page.getByRole("link", { name: "Threads" }).first().click();
      await page.getByLabel("Part of a thread's id").fill("nothing-like-this");
      await visible(page.getByText("No thread has this text in its id."));
      await page.getByLabel("Part of a thread's id").fill(thread.slice(3, 20));
      await visible(page.locator(".thread-list .c-thread a", { hasText: thread }));
      await page.locator("h1").click();
      await page.keyboard.press("/");
      await page.locator(".palette-input").fill(thread);
      await page.keyboard.press("Enter");
      await visible(page.locator(".said.user", { hasText: "delete /tmp/old" }));
    });
  });

  test("a message that is refused stays in its field", async () => {
    await say("refused", "what is 1+1?");
    await withPage(server, "/ui/threads/refused", async ({ page }) => {
      const box = page.getByLabel("Message", { exact: true });
      await visible(page.locator(".said.assistant", { hasText: "That is 2." }));
      await page.route("**/messages", (route) => (route.request().method() === "POST" ? route.fulfill({ status: 409, json: { type: "", title: "", status: 409, code: "run_open", detail: "a run is open" } }) : route.continue()));
      await box.fill("what is 2+2?");
      await page.keyboard.press("Enter");
      await visible(page.getByRole("alert").getByText("a run is open"));
      assert.equal(await box.inputValue(), "what is 2+2?");
      await page.unroute("**/messages");
      await page.getByRole("button", { name: "Send" }).click();
      await visible(page.locator(".said.assistant", { hasText: "That is 4." }));
      assert.equal(await box.inputValue(), "");
    });
  });

  test("a streamed answer whose beginning was missed says so, is followed again, and goes when it is stored", async () => {
    const { runId } = await say("stream", "what is 1+1?");
    const event = (name: string, members: object) => `event: ${name}\ndata: ${JSON.stringify({ event: name, runId, ...members })}\n\n`;
    // Each connection sends what is there and ends.
    let sent = event("message.delta", { text: "sentence" }) + event("message.delta", { text: " one" });
    let isStored = false;
    await withPage(server, "/ui/threads", async ({ page }) => {
      await page.route("**/api/v1/threads/stream/runs*", async (route) => {
        const response = await route.fetch();
        const json = await response.json();
        for (const run of json.items) run.status = "running";
        await route.fulfill({ response, json });
      });
      await page.route("**/api/v1/threads/stream/messages*", async (route) => {
        const response = await route.fetch();
        const json = await response.json();
        if (!isStored) json.items = json.items.filter(({ role }: { role: string }) => role !== "assistant");
        await route.fulfill({ response, json });
      });
      await page.route("**/api/v1/runs/*/events", (route) => route.fulfill({ contentType: "text/event-stream", body: sent }));
      await page.goto(`${server.url}/ui/threads/stream`);
      const text = page.locator(".said.now .text");
      await visible(text.getByText("…sentence one", { exact: true }));
      sent = event("message.delta", { text: "three" });
      await visible(text.getByText("…three", { exact: true }));
      sent = event("message.delta", { text: "whole", again: true });
      await visible(text.getByText("whole", { exact: true }));
      sent = "";
      isStored = true;
      await visible(page.locator(".said.assistant:not(.now)", { hasText: "That is 2." }));
      await gone(text);
    });
  });

  test("a run that waits is cancelled; its page shows the steps, and leads to its calls and thread", async () => {
    const { runId } = await say("cancel", "delete /tmp/x");
    await withPage(server, "/ui/threads/cancel", async ({ page }) => {
      await visible(page.locator(".open-call"));
      await page.getByRole("button", { name: "Cancel the run" }).click();
      await visible(page.getByText("The last run was cancelled."));
      await gone(page.locator(".open-call"));
      await page.goto(`${server.url}/ui/runs/${runId}`);
      await visible(page.locator("h1 .badge", { hasText: "cancelled" }));
      await visible(page.locator(".waterfall .c-step", { hasText: "Model" }));
      await page.locator(".waterfall .c-step a", { hasText: "dangerous" }).click();
      // The call has the same kind of picture, and leads back.
      await visible(page.locator(".waterfall .c-step", { hasText: "Awaiting approval" }));
      await page.getByRole("link", { name: runId }).click();
      await page.locator("#run .facts a", { hasText: "cancel" }).click();
      await visible(page.locator(".said.user"));
    });
  });

  test("the waterfall has attempts with their errors, and who answered an approval", async () => {
    const approval = await server.ask("dangerous", { folder: "/tmp/w" }, "w");
    await server.api("POST", `/api/v1/approvals/${approval}`, { outcome: "proceed_once" });
    const { callId } = await server.api("GET", `/api/v1/approvals/${approval}`);
    await until("the call to end", async () => (await server.api("GET", `/api/v1/calls/${callId}`)).status === "success");
    const { id: failed } = await server.call("flaky", {}, "w");
    await withPage(server, `/ui/calls/${callId}`, async ({ page }) => {
      const row = (name: string) => page.locator(".waterfall .long-row", { hasText: name });
      await visible(row("Awaiting approval").getByText("local"));
      await visible(row("Attempt 1"));
      await page.goto(`${server.url}/ui/calls/${failed}`);
      await visible(row("Attempt 1").locator("rect.failed"));
    });
  });

  test("the result of an external call is reported, and the run goes on", async () => {
    await say("outside", "what is 2+3?", "outside");
    await withPage(server, "/ui/threads/outside", async ({ page }) => {
      const form = page.locator(".open-call");
      await visible(form.getByText("2+3"));
      await form.getByLabel("Result").fill("five");
      await visible(form.getByText("sent as text"));
      await form.getByLabel("Result").fill("5");
      await visible(form.getByText("sent as JSON"));
      await form.getByRole("button", { name: "Report" }).click();
      await visible(page.locator(".said.assistant .text", { hasText: "That is 5." }));
      await visible(page.locator(".side").getByText("of 5k").or(page.locator(".side").getByText("of 5000")));
      assert.equal(await page.getByLabel("Agent").inputValue(), "outside");
    });
  });

  test("numbers of a conversation are shown, and those of a result sent, as they were written", async () => {
    const [large, long] = ["9007199254740993", "0.12345678901234567890"];
    await say("exact", "what is 2+3?", "outside");
    await withPage(server, "/ui/", async ({ page }) => {
      // As a model may call a tool that takes numbers.
      await page.route(/\/api\/v1\/(threads\/exact\/(messages|runs)|runs\/)/, async (route) => {
        if (route.request().method() !== "GET") return route.fallback();
        const response = await route.fetch();
        await route.fulfill({ response, body: (await response.text()).replaceAll('"expression":"2+3"', `"expression":${large},"ratio":1.0`) });
      });
      await page.goto(`${server.url}/ui/threads/exact`);
      const shows = (within: Locator) => visible(within.getByText(new RegExp(`"expression": ${large},\\s+"ratio": 1\\.0`)));
      const form = page.locator(".open-call");
      await shows(form);
      await page.goto(`${server.url}/ui/runs/${(await server.api("GET", "/api/v1/threads/exact/runs")).items[0].id}`);
      await shows(form);
      await page.goto(`${server.url}/ui/threads/exact`);
      await form.getByLabel("Result").fill(`[${large}, ${long}]`);
      await visible(form.getByText("sent as JSON"));
      const sent = page.waitForRequest((request) => request.url().endsWith("/result"));
      await form.getByRole("button", { name: "Report" }).click();
      assert.equal((await sent).postData(), `{"output":[${large},${long}]}`);
      await page.locator(".done summary", { hasText: large }).click();
      await shows(page.locator(".done"));
    });
  });

  test("a result that was typed stays when the call ends meanwhile", async () => {
    const { calls } = await say("late", "what is 2+3?", "outside");
    await withPage(server, "/ui/threads/late", async ({ page }) => {
      await page.locator(".open-call textarea").fill("half an answer");
      await server.api("POST", `/api/v1/calls/${calls[0].id}/result`, { output: 5 });
      await visible(page.getByText("Ended meanwhile"));
      await visible(page.locator(".said.assistant .text", { hasText: "That is 5." }));
      assert.equal(await page.locator(".open-call textarea").inputValue(), "half an answer");
      assert.ok(await page.getByRole("button", { name: "Report" }).isDisabled());
    });
  });

  test("a typed denial of a direct call stays when another person answers", async () => {
    const approval = await server.ask("dangerous", { folder: "/tmp/d" }, "denial");
    await withPage(server, "/ui/threads/denial", async ({ page }) => {
      const box = page.locator(".said.direct .open-call");
      await box.getByRole("button", { name: "Deny…" }).click();
      await box.locator("textarea").fill("not this folder");
      await server.api("POST", `/api/v1/approvals/${approval}`, { outcome: "proceed_once" });
      await visible(page.locator(".said.direct", { hasText: "success" }));
      assert.equal(await box.locator("textarea").inputValue(), "not this folder");
    });
  });

  test("of several approvals the first has the keys, then the next", async () => {
    const first = await server.ask("dangerous", { folder: "/tmp/first" }, "several");
    await server.ask("dangerous", { folder: "/tmp/second" }, "several");
    await withPage(server, "/ui/", async ({ page }) => {
      const box = (name: string) => page.locator(".said.direct .open-call", { hasText: name });
      // The one that is read first is not the first on the page.
      await page.route(`**/api/v1/approvals/${first}`, async (route) => {
        await visible(box("/tmp/second"));
        await route.fallback();
      });
      await page.goto(`${server.url}/ui/threads/several`);
      await visible(box("/tmp/first"));
      await visible(box("/tmp/second"));
      await page.locator("h1").click();
      await page.keyboard.press("d");
      await visible(box("/tmp/first").locator("textarea"));
      assert.equal(await page.locator(".open-call textarea").count(), 1);
      await box("/tmp/first").locator("button[type=submit]").click();
      await gone(box("/tmp/first"));
      await page.locator("h1").click();
      await page.keyboard.press("d");
      await visible(box("/tmp/second").locator("textarea"));
    });
  });

  test("beside it stand the tools that are offered, those that are not and why, and the states", async () => {
    await server.call("notes", { add: "milk" }, "side");
    await withPage(server, "/ui/threads/side", async ({ page }) => {
      const tools = page.locator("#thread-tools");
      await visible(tools.locator(".names", { hasText: "calculator" }));
      await visible(tools.locator(".withheld li", { hasText: "report" }).getByText("waiting for clock"));
      await visible(page.locator(".said.direct", { hasText: "notes" }));
      await visible(page.locator(".side .card", { hasText: "States" }).getByRole("link", { name: "notes" }));
      await server.call("clock", {}, "side");
      await visible(tools.locator(".names", { hasText: "report" }));
    });
    await say("small", "what is 1+1?", "small");
    await withPage(server, "/ui/threads/small", async ({ page }) => {
      await visible(page.locator("#thread-tools").getByText("do not belong to the agent."));
      assert.equal(await page.locator("#thread-tools .names a").count(), 2);
    });
  });

  test("a live instance is listed and closed", async () => {
    await until("the tool to be there", async () => (await server.call("inner__calculator", { expression: "1+1" }, "live")).status === "success");
    await withPage(server, "/ui/threads/live", async ({ page }) => {
      const card = page.locator("#instances");
      await visible(card.getByText("inner__calculator"));
      await card.getByRole("button", { name: "Close" }).click();
      await visible(card.getByText("No tool keeps"));
    });
  });

  test("a deleted thread leaves also the older rows of the list", async () => {
    await Promise.all(Array.from({ length: 120 }, () => server.api("POST", "/api/v1/threads")));
    const { id } = (await server.api("GET", "/api/v1/threads?order=active&limit=500")).items[110];
    await withPage(server, "/ui/threads", async ({ page }) => {
      await page.getByRole("button", { name: "Older threads" }).click();
      const rows = page.locator(".thread-list [role=table]");
      const count = async () => Number(await rows.getAttribute("aria-rowcount"));
      const all = await until("all threads", async () => ((await count()) > 101 ? count() : 0));
      await server.api("DELETE", `/api/v1/threads/${id}`);
      // The list is read at the latest when a call is made.
      await server.call("calculator", { expression: "1+1" });
      await until("one row less", async () => (await count()) === all - 1);
    });
  });

  test("a thread is exported, and deleted after a question", async () => {
    await say("goes", "what is 6*7?");
    await withPage(server, "/ui/threads/goes", async ({ page }) => {
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Export" }).click()]);
      const exported = JSON.parse(readFileSync(await download.path(), "utf8"));
      assert.equal(exported.messages[0].content, "what is 6*7?");
      await page.getByRole("button", { name: "Delete…" }).click();
      await visible(page.getByText("This cannot be undone."));
      await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
      await visible(page.locator(".thread-list"));
      assert.equal((await server.api("GET", "/api/v1/threads/goes")).httpStatus, 404);
    });
  });

  test("a thread with an open run is not deleted, and the answer says why", async () => {
    await say("busy", "delete /tmp/x");
    await withPage(server, "/ui/threads/busy", async ({ page }) => {
      await page.getByRole("button", { name: "Delete…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
      await visible(page.getByRole("dialog").getByRole("alert"));
    });
  });

  test("runs are listed by status, and unknown ids have the closest names and the way back", async () => {
    const { runId } = await say("listed", "what is 1+1?");
    await withPage(server, "/ui/threads?view=runs", async ({ page }) => {
      const rows = page.locator(".run-list .c-thread a");
      await visible(rows.getByText("listed"));
      await page.getByLabel("Status").selectOption("open");
      await visible(rows.getByText("busy"));
      await gone(rows.getByText("listed"));
      await page.goto(`${server.url}/ui/threads/listd`);
      await page.getByRole("main").getByRole("link", { name: "listed" }).click();
      await visible(page.locator(".said.user"));
      await page.goto(`${server.url}/ui/runs/${runId.slice(0, -2)}00`);
      await visible(page.getByText("store.retention.idle_threads"));
      await page.getByRole("main").getByRole("link", { name: runId }).click();
      await visible(page.locator("#run"));
    });
  });
});

describe("threads with a key", { concurrency: 1 }, () => {
  let server: TestServer;
  before(async () => void (server = await TestServer.start({ keys: true })));
  after(() => server.stop());

  test("a key that may only read sees the conversation, and no box or button", async () => {
    await server.api("POST", "/api/v1/threads/read/messages", { content: "delete /tmp/x" }, { prefer: "wait=5" });
    const { key } = await server.key("viewer", ["tools:read"]);
    const opened = await openAs(server, key, "/ui/threads/read");
    await visible(opened.page.locator(".said.user", { hasText: "delete /tmp/x" }));
    await visible(opened.page.locator(".open-call"));
    await visible(opened.page.locator("#thread-tools .names"));
    assert.equal(await opened.page.getByLabel("Message", { exact: true }).count(), 0);
    for (const name of ["Cancel the run", "Delete…", "Allow once", "Close"]) assert.equal(await opened.page.getByRole("button", { name }).count(), 0, name);
    assert.equal(await opened.page.getByRole("link", { name: "Export" }).count(), 0);
    await close(opened);
  });
});
