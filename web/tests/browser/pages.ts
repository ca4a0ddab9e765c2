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
  for (let call = 0; call < 4; call++) await server.call("flaky", {}, "t1");
  await server.api("POST", "/api/v1/threads/talk/messages", { content: "what is 2+3*4?" }, { prefer: "wait=5" });
  await server.api("POST", "/api/v1/tools/notes/disable", { reason: "not needed this week" });
  await server.api("PUT", "/api/v1/tools/clock/status", { status: "maintenance", reason: "new clock", until: new Date(Date.now() + 3_000_000).toISOString() });
  const [granted, denied] = [await server.ask("dangerous", { folder: "/tmp/granted" }, "t1"), await server.ask("dangerous", { folder: "/tmp/denied" }, "t2")];
  await server.api("POST", `/api/v1/approvals/${granted}`, { outcome: "proceed_always" });
  await server.api("POST", `/api/v1/approvals/${denied}`, { outcome: "cancel", reason: "use the trash" });
  const long = await server.ask("dangerous", { folder: `/tmp/${"long/".repeat(200)}` }, "t3");
  const waiting = await server.ask("dangerous", { folder: "/var/cache/builds" }, "talk");
  await changeDefinition(server, "Reads a file, and sends it to the vendor.");
  return [
    { name: "graph", path: "/ui/graph" },
    { name: "graph-thread", path: "/ui/graph?thread=t1&tool=in_order" },
    { name: "graph-list", path: "/ui/graph?thread=t1&view=list" },
    { name: "graph-unknown", path: "/ui/graph?tool=repor" },
    { name: "servers", path: "/ui/mcp-servers" },
    { name: "server", path: "/ui/mcp-servers/files" },
    { name: "server-approve", path: "/ui/mcp-servers/files", act: (page) => page.locator(".changes article button").first().click() },
    { name: "server-unknown", path: "/ui/mcp-servers/fils" },
    { name: "nodes", path: "/ui/nodes", act: (page) => page.locator(".page-head button").click().then(() => visible(page.locator("main [role=status]"))) },
    { name: "overview", path: "/ui/" },
    { name: "tools", path: "/ui/tools" },
    { name: "tools-empty", path: "/ui/tools?q=nothing-like-this" },
    { name: "tool", path: "/ui/tools/flaky" },
    { name: "tool-thread", path: "/ui/tools/report?thread=t2" },
    { name: "tool-try", path: "/ui/tools/order?tab=try", act: (page) => fillOrder(page) },
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
    { name: "approvals", path: "/ui/approvals" },
    { name: "approval", path: `/ui/approvals/${waiting}` },
    { name: "approval-long", path: `/ui/approvals/${long}` },
    { name: "approval-edit", path: `/ui/approvals/${waiting}`, act: (page) => edit(page) },
    { name: "approval-denied", path: `/ui/approvals/${denied}` },
    { name: "approvals-answered", path: "/ui/approvals?view=answered" },
    { name: "grants", path: "/ui/approvals?view=grants" },
    { name: "unknown", path: "/ui/tolls" },
    { name: "palette", path: "/ui/", act: (page) => page.keyboard.press("/") },
    { name: "help", path: "/ui/", act: (page) => page.keyboard.press("?") },
    { name: "preferences", path: "/ui/", act: (page) => page.locator(".top .icon-button").last().click() },
  ];
}

/** A field of the form by the JSON pointer of its place. */
export const place = (page: Page, pointer: string) => page.locator(`[id="field${pointer}"]`);

async function fillOrder(page: Page): Promise<void> {
  const group = (name: string) => page.locator("fieldset.field", { has: page.locator("legend > code", { hasText: new RegExp(`^${name}$`) }) });
  await group("lines").locator("button").first().click();
  await group("lines").locator("> .group-actions button").first().click();
  await group("to").locator("button").first().click();
  await place(page, "/customer").fill("A");
  await place(page, "/lines/0/sku").fill("tea");
  await page.locator(".try button.primary").click();
  await visible(page.getByRole("alert"));
}

async function runAgain(page: Page): Promise<void> {
  await page.locator(".try button.primary").click();
  await visible(page.locator(".result .failure"));
}

async function edit(page: Page): Promise<void> {
  await page.locator(".answers button:not(.primary, .danger)").last().click();
  await page.locator("textarea[name=arguments]").fill('{\n  "folder": "/var/cache/builds/old"\n}');
}

/** Goes to the page and waits until it has read everything. */
export async function show(page: Page, server: { url: string }, shown: Shown): Promise<void> {
  await page.goto(server.url + shown.path);
  await visible(page.locator(".main-nav"));
  await page.waitForFunction(() => document.querySelector("main .page") && !document.querySelector(".loading"));
  if (!shown.act) return;
  await shown.act(page);
  await page.waitForFunction(() => !document.querySelector(".loading"));
}
