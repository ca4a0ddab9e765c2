// Every page with something on it, for tests that look at all of them.
import { writeFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { visible } from "./browser.ts";
import { type TestServer, until } from "./server.ts";

export interface Shown {
  name: string;
  path: string;
  /** Brings the page into the state to be looked at, for example with an open dialog. */
  act?: (page: Page) => Promise<void>;
}

/** An MCP server that is a program of its own. */
export const mcpConfig = `
[mcp_servers.files]
command = ${JSON.stringify(process.execPath)}
args = [${JSON.stringify(new URL("./mcp-server.ts", import.meta.url).pathname)}]
`;

/** Lets the MCP server come back with another definition. */
export async function changeDefinition(server: TestServer, description: string): Promise<void> {
  const counts = async () => (await server.api("GET", "/api/v1/mcp-servers")).items[0].toolCounts;
  await until("the MCP server to connect", async () => (await counts()).registered === 2);
  writeFileSync(`${server.folder}/description.txt`, description);
  await server.api("POST", "/api/v1/mcp-servers/files/restart");
  await until("the change to wait", async () => (await counts()).pendingApproval === 1);
}

/** Dependencies of each kind. */
export const graphConfig = `
[tools.either]
command = "cat"
depends_on = { any = ["clock", "calculator"] }
[tools.in_order]
command = "cat"
depends_on = { sequence = ["clock", "either"], all = ["report"], within = "10m" }
`;

/** A tool whose schema has each kind of field, and more that `fill` needs. */
export const richConfig = `
${mcpConfig}
[mcp_servers.lost]
command = "/bin/false"
${graphConfig}
[tools.order]
command = "cat"
description = "Places an order"
annotations = { read_only = true }
[tools.order.parameters]
type = "object"
required = ["customer", "lines"]
[tools.order.parameters."$defs".address]
type = "object"
required = ["city"]
properties = { city = { type = "string", description = "Where it goes" }, next = { "$ref" = "#/$defs/address" } }
[tools.order.parameters.properties]
customer = { type = "string", minLength = 3, description = "Name or number" }
express = { type = "boolean", default = false }
count = { type = "integer", minimum = 1 }
speed = { enum = ["slow", "fast"] }
note = { type = ["string", "null"] }
lines = { type = "array", items = { type = "object", required = ["sku"], properties = { sku = { type = "string" }, price = { type = "number" } } } }
to = { "$ref" = "#/$defs/address" }
pay = { oneOf = [{ title = "Card", type = "object", required = ["type", "number"], properties = { type = { const = "card" }, number = { type = "string" } } }, { title = "Invoice", type = "string" }] }
extra = { type = "object", additionalProperties = true }
`;

/** Fills a server: calls, failures, approvals of each kind, a grant, maintenance. */
export async function fill(server: TestServer): Promise<Shown[]> {
  const { id: answered } = await server.call("calculator", { expression: "6*7" }, "t1");
  for (let call = 0; call < 5; call++) await server.call("calculator", { expression: "6*7" }, "t1");
  const { id: failed } = await server.call("calculator", { expression: "1/0" });
  await server.call("clock", {}, "t1");
  const { id: ordered } = await server.call("order", { customer: "Ada", lines: [{ sku: "tea", price: 3.5 }], to: { city: "Oslo" }, note: null, extra: { password: "hunter2", gift: true } });
  for (let call = 0; call < 4; call++) await server.call("flaky", {}, "t1");
  await server.api("POST", "/api/v1/threads/talk/messages", { content: "what is 2+3*4?" }, { prefer: "wait=5" });
  await server.api("POST", "/api/v1/tools/notes/disable", { reason: "not needed this week" });
  await server.api("PUT", "/api/v1/tools/clock/status", { status: "maintenance", reason: "new clock", until: new Date(Date.now() + 3_000_000).toISOString() });
  const [granted, denied] = [await server.ask("dangerous", { folder: "/tmp/granted" }, "t1"), await server.ask("dangerous", { folder: "/tmp/denied" }, "t2")];
  await server.api("POST", `/api/v1/approvals/${granted}`, { outcome: "proceed_always" });
  await server.api("POST", `/api/v1/approvals/${denied}`, { outcome: "cancel", reason: "use the trash" });
  const long = await server.ask("dangerous", { folder: `/tmp/${"long/".repeat(200)}` }, "t3");
  const waiting = await server.ask("dangerous", { folder: "/var/cache/builds" }, "talk");
  const threads = await fillThreads(server);
  await changeDefinition(server, "Reads a file, and sends it to the vendor.");
  return [
    ...threads,
    { name: "graph", path: "/ui/graph" },
    { name: "graph-thread", path: "/ui/graph?thread=t1&tool=in_order" },
    { name: "graph-list", path: "/ui/graph?thread=t1&view=list" },
    { name: "graph-unknown", path: "/ui/graph?tool=repor" },
    { name: "servers", path: "/ui/mcp-servers" },
    { name: "server", path: "/ui/mcp-servers/files" },
    { name: "server-approve", path: "/ui/mcp-servers/files", act: (page) => page.locator(".changes article button").first().click() },
    { name: "server-unknown", path: "/ui/mcp-servers/fils" },
    { name: "nodes", path: "/ui/nodes", act: (page) => page.locator(".page-head button").click().then(() => visible(page.locator("main [role=status]"))) },
    { name: "alerts", path: "/ui/alerts" },
    { name: "overview", path: "/ui/" },
    { name: "tools", path: "/ui/tools" },
    { name: "tools-empty", path: "/ui/tools?q=nothing-like-this" },
    { name: "tool", path: "/ui/tools/flaky" },
    { name: "tool-thread", path: "/ui/tools/report?thread=t2" },
    { name: "tool-try", path: "/ui/tools/order?tab=try", act: (page) => fillOrder(page) },
    { name: "tool-try-dry", path: `/ui/tools/order?tab=try&call=${ordered}`, act: (page) => dryRun(page) },
    { name: "tool-try-tree", path: `/ui/tools/order?tab=try&call=${ordered}`, act: (page) => runToTree(page) },
    { name: "tool-try-result", path: `/ui/tools/calculator?tab=try&call=${failed}`, act: (page) => runAgain(page) },
    { name: "tool-try-ask", path: "/ui/tools/dangerous?tab=try", act: (page) => page.locator(".try button.primary").click() },
    { name: "tool-schema", path: "/ui/tools/calculator?tab=schema" },
    { name: "tool-limits", path: "/ui/tools/dangerous?tab=limits" },
    { name: "tool-calls", path: "/ui/tools/calculator?tab=calls" },
    { name: "tool-dependencies", path: "/ui/tools/report?tab=dependencies" },
    { name: "tool-unknown", path: "/ui/tools/calcullator" },
    { name: "maintenance", path: "/ui/tools/flaky", act: (page) => page.locator(".actions button").nth(1).click() },
    { name: "calls", path: "/ui/calls" },
    { name: "calls-paused", path: "/ui/calls?status=error&since=2020-01-01T00:00:00Z", act: (page) => page.keyboard.press("p") },
    { name: "calls-empty", path: "/ui/calls?thread=nothing-like-this" },
    { name: "call", path: `/ui/calls/${answered}` },
    { name: "call-failed", path: `/ui/calls/${failed}?status=error` },
    { name: "call-unknown", path: "/ui/calls/call_00000000-0000-7000-8000-000000000000" },
    { name: "refusals", path: "/ui/calls?view=refusals" },
    { name: "refusal", path: "/ui/calls?view=refusals", act: openRow },
    { name: "approvals", path: "/ui/approvals" },
    { name: "approval", path: `/ui/approvals/${waiting}` },
    { name: "approval-long", path: `/ui/approvals/${long}` },
    { name: "approval-edit", path: `/ui/approvals/${waiting}`, act: (page) => edit(page) },
    { name: "approval-denied", path: `/ui/approvals/${denied}` },
    { name: "approvals-answered", path: "/ui/approvals?view=answered" },
    { name: "grants", path: "/ui/approvals?view=grants" },
    { name: "grant", path: "/ui/approvals?view=grants", act: openRow },
    { name: "unknown", path: "/ui/tolls" },
    ...(await fillSettings(server)),
    { name: "palette", path: "/ui/", act: (page) => page.keyboard.press("/") },
    { name: "help", path: "/ui/", act: (page) => page.keyboard.press("?") },
    { name: "preferences", path: "/ui/", act: (page) => page.locator(".top .icon-button").last().click() },
  ];
}

/** Conversations: one that has ended and one that waits for an approval. */
async function fillThreads(server: TestServer): Promise<Shown[]> {
  const say = (thread: string, content: string) => server.api("POST", `/api/v1/threads/${thread}/messages`, { content }, { prefer: "wait=5" });
  const { runId: ended } = await say("talk-2", "remember to buy tea");
  await say("talk-2", "what is (2+3)*4?");
  const { runId: open } = await say("asks", "delete /var/cache/old");
  await until("the run to wait", async () => (await server.api("GET", `/api/v1/runs/${open}`)).status === "waiting");
  return [
    { name: "threads", path: "/ui/threads" },
    { name: "threads-empty", path: "/ui/threads?q=nothing-like-this" },
    { name: "runs", path: "/ui/threads?view=runs" },
    { name: "thread", path: "/ui/threads/talk-2" },
    { name: "thread-asks", path: "/ui/threads/asks" },
    { name: "thread-delete", path: "/ui/threads/talk-2", act: (page) => page.locator(".page-head button.danger").click() },
    { name: "thread-unknown", path: "/ui/threads/tallk" },
    { name: "run", path: `/ui/runs/${ended}` },
    { name: "run-unknown", path: "/ui/runs/run_00000000-0000-7000-8000-000000000000" },
  ];
}

/** States, keys and entries of the audit log. */
async function fillSettings(server: TestServer): Promise<Shown[]> {
  const cart = "/api/v1/state/contexts/talk%2Fcart";
  for (const tea of [1, 2, 3]) await server.api("PUT", `${cart}/business`, { data: { tea, sugar: "brown", lines: [{ sku: "cup", count: tea }] }, ttl: "7d" });
  await server.api("PUT", `${cart}/cache`, { data: { price: 4.5 }, ttl: "1h" });
  await server.api("PUT", "/api/v1/state/contexts/~%2Frates/business", { data: { eur: 1.08 } });
  await server.api("POST", "/api/v1/keys", { name: "ada", scopes: ["tools:read", "state:read"], expiresIn: "90d" });
  await server.api("POST", "/api/v1/keys", { name: "night-watch", scopes: ["tools:read", "approvals:write"] });
  const context = "/ui/state/talk%2Fcart";
  const edit = async (page: Page, text: string) => {
    await page.locator(".card-head button").click();
    await page.locator("textarea[name=data]").fill(text);
  };
  return [
    { name: "state", path: "/ui/state" },
    { name: "state-empty", path: "/ui/state?q=nothing-like-this" },
    { name: "context", path: context },
    { name: "context-cache", path: `${context}?kind=cache` },
    { name: "context-bad", path: context, act: (page) => edit(page, '{\n  "tea": 3,\n  "sugar": brown\n}') },
    {
      name: "context-conflict",
      path: context,
      act: async (page) => {
        await edit(page, '{ "tea": 30, "sugar": "brown", "lemon": true }');
        await server.api("PATCH", `${cart}/business`, { data: { tea: Math.floor(Math.random() * 1000), milk: true } });
        await visible(page.locator(".conflict"));
      },
    },
    { name: "context-rollback", path: context, act: (page) => page.locator(".past li button").nth(1).click() },
    { name: "context-unknown", path: "/ui/state/talk%2Fcard" },
    { name: "settings", path: "/ui/settings" },
    { name: "settings-reload", path: "/ui/settings?q=tools", act: (page) => page.locator(".filters button").click().then(() => visible(page.locator(".reload"))) },
    { name: "settings-keys", path: "/ui/settings?view=keys" },
    { name: "settings-key", path: "/ui/settings?view=keys", act: openRow },
    { name: "settings-new-key", path: "/ui/settings?view=keys", act: (page) => page.locator(".actions button").click() },
    { name: "settings-audit", path: "/ui/settings?view=audit" },
    { name: "settings-backups", path: "/ui/settings?view=backups", act: (page) => page.locator(".actions button").first().click().then(() => visible(page.locator(".command"))) },
    { name: "settings-about", path: "/ui/settings?view=about" },
  ];
}

/** A field of the form by the JSON pointer of its place. */
export const place = (page: Page, pointer: string) => page.locator(`[id="field${pointer}"]`);

const openRow = (page: Page) => page.locator(".dialog-list button.link").first().click();

async function fillOrder(page: Page): Promise<void> {
  const group = (name: string) => page.locator("fieldset.field", { has: page.locator("legend > code", { hasText: new RegExp(`^${name}$`) }) });
  await group("lines").locator("> button").click();
  await group("lines").locator("> .group-actions button").first().click();
  await group("to").locator("> button").click();
  await place(page, "/customer").fill("A");
  await place(page, "/lines/0/sku").fill("tea");
  await page.locator(".try button.primary").click();
  await visible(page.getByRole("alert"));
}

async function runAgain(page: Page): Promise<void> {
  await page.locator(".try button.primary").click();
  await visible(page.locator(".result .failure"));
}

async function dryRun(page: Page): Promise<void> {
  await place(page, "/customer").fill("A");
  await page.locator(".try .actions button").first().click();
  await visible(page.locator("#forecast"));
}

async function runToTree(page: Page): Promise<void> {
  await page.locator(".try button.primary").click();
  await visible(page.locator(".tree"));
}

async function edit(page: Page): Promise<void> {
  await page.locator(".answers button:not(.primary, .danger)").last().click();
  await page.locator(".decision .segmented button").last().click();
  await page.locator("textarea[name=arguments]").fill('{\n  "folder": "/var/cache/builds/old"\n}');
}

/** On these an `act` has left something: typed texts, dialogs. */
const touched = new WeakSet<Page>();

/** Goes to the page and waits until it has read everything; says whether the document was loaded for it. */
export async function show(page: Page, server: { url: string }, shown: Shown): Promise<boolean> {
  const isLoaded = touched.has(page) || !(await follow(page, shown.path));
  if (isLoaded) await page.goto(server.url + shown.path);
  await visible(page.locator(".main-nav"));
  await page.waitForFunction(() => document.querySelector("main .page") && !document.querySelector(".loading"));
  if (shown.act) {
    touched.add(page);
    await shown.act(page);
    await page.waitForFunction(() => !document.querySelector(".loading"));
  } else touched.delete(page);
  return isLoaded;
}

/** Goes on in the loaded document, as a link does, which is much quicker; false if there is none. */
const follow = (page: Page, path: string): Promise<boolean> =>
  page.evaluate(async (to) => {
    if (!document.querySelector("main .page")) return false;
    history.pushState(null, "", to);
    dispatchEvent(new PopStateEvent("popstate"));
    // After a frame the page is the new one.
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
    return true;
  }, path);
