// Fills the form of each of many tools and asks a real server whether it accepts the arguments:
//   TOOLHUB_BIN=… ./node tests/corpus/run.ts --openapi FOLDER --mcp FOLDER
//
// FOLDER: the documents of checks/openapi, and the installed packages of checks/mcp. Besides these real tools there are the odd
// schemas of odd.ts. What a form cannot show it must leave to a field for JSON at that place, so a value of an odd schema is
// put there; a real schema must be filled by its fields, with JSON only where they say so.

import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { valueAt, withAt } from "../../src/base/form.ts";
import type { Json } from "../../src/base/json.ts";
import { TestServer, until } from "../browser/server.ts";
import { Form } from "./fill.ts";
import { odd, type Odd } from "./odd.ts";

const { values: options } = parseArgs({ options: { openapi: { type: "string" }, mcp: { type: "string" } } });
const leastTools = 300;

interface Tool {
  name: string;
  parameters: Json;
}

interface Problem {
  pointer: string;
  detail: string;
}

const begin = performance.now();
const folder = options.openapi;
// A binary that is not optimized takes a second for some tens of operations with large schemas, so of most documents these must do.
const methods: Record<string, string[]> = { slack: [], figma: [], digitalocean: ["post"], box: ["put"], jira: ["put"], github: ["put"] };
const documents = folder ? readdirSync(folder).filter((file) => Object.hasOwn(methods, nameOf(file))) : [];
const imports = documents.map((file) => {
  const some = methods[nameOf(file)]!;
  return `[[imports.openapi]]\nspec = ${JSON.stringify(resolve(folder!, file))}\nprefix = "${nameOf(file)}"\nbase_url = "https://service.example"\n${some.length > 0 ? `methods = ${JSON.stringify(some)}\n` : ""}`;
});
const servers = options.mcp ? { everything: ["server-everything/dist/index.js", "stdio"], memory: ["server-memory/dist/index.js"], filesystem: ["server-filesystem/dist/index.js", "/tmp"] } : {};
const command = (args: string[]) => `command = ${JSON.stringify(process.execPath)}\nargs = ${JSON.stringify(args)}\ntrust = true\n`;
const config = [
  ...imports,
  `[mcp_servers.odd]\n${command([new URL("mcp.ts", import.meta.url).pathname])}prefix = ""\n`,
  ...Object.entries(servers).map(([name, [file, ...args]]) => `[mcp_servers.${name}]\n${command([resolve(options.mcp!, "node_modules/@modelcontextprotocol", file!), ...args])}`),
];
const server = await TestServer.start({ config: config.join("\n"), startTimeoutMs: 300_000 });
try {
  await check();
} finally {
  await server.stop();
}

async function check(): Promise<void> {
  await until("the MCP servers", async () => (await server.api("GET", "/api/v1/mcp-servers")).items?.every?.((one: { connection?: string }) => one.connection === "connected"), 120_000);
  const tools = await all();
  const started = performance.now();
  const oddTools = odd.map((one, index) => ({ one, tool: tools.find(({ name }) => name === `odd_${index}`) }));
  const groups = new Map<string, Tool[]>();
  for (const tool of tools) {
    const [source, rest] = tool.name.split("__");
    if (rest) groups.set(source!, [...(groups.get(source!) ?? []), tool]);
  }
  const complaints: string[] = [];
  for (const { one, tool } of oddTools) {
    if (!tool) complaints.push(`odd: ${one.name}: the server does not offer it`);
    else complaints.push(...(await oddly(tool, one)).map((text) => `odd: ${one.name}: ${text}`));
  }
  const rows: [string, number, number][] = [["odd", odd.length, odd.filter(({ json }) => json !== undefined).length]];
  for (const [name, members] of groups) {
    let partly = 0;
    for (const tool of members) {
      const { wrong, asJson } = await filled(tool);
      if (wrong) complaints.push(`${tool.name}: ${wrong}`);
      if (asJson) partly++;
    }
    rows.push([name, members.length, partly]);
  }
  for (const [name, known, partly] of rows) console.log(`${name}: ${known} tools, ${partly} of them partly as JSON`);
  const count = rows.reduce((sum, [, known]) => sum + known, 0);
  console.log(`${count} tools, ${((started - begin) / 1000).toFixed(1)} s to start the server, ${((performance.now() - started) / 1000).toFixed(1)} s to fill`);
  if (options.openapi && count < leastTools) complaints.push(`only ${count} tools`);
  for (const complaint of complaints) console.error(complaint);
  if (complaints.length > 0) process.exitCode = 1;
}

async function all(): Promise<Tool[]> {
  const found: Tool[] = [];
  let cursor = "";
  do {
    const page = await server.api("GET", `/api/v1/tools?limit=500${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    found.push(...page.items);
    cursor = page.nextCursor ?? "";
  } while (cursor);
  return found;
}

/** What the server says about the arguments. */
async function problems(tool: Tool, args: Json): Promise<Problem[]> {
  const answer = await server.api("POST", `/api/v1/tools/${encodeURIComponent(tool.name)}/explain`, { arguments: args });
  return answer.call?.problems ?? [{ pointer: "", detail: JSON.stringify(answer).slice(0, 300) }];
}

function textOf(wrong: Problem[]): string {
  return wrong.map(({ pointer, detail }) => `${pointer || "/"} ${detail}`).join("; ").slice(0, 500);
}

/** The ways in which people fill in a form, until the server accepts one; each corrects what it says to be wrong. */
async function filled(tool: Tool): Promise<{ wrong: string; asJson: boolean }> {
  let complaint = "";
  for (const manner of [{ optional: 0, option: 0 }, { optional: 0, option: 0, first: true }, { optional: 2, option: 0 }, { optional: 0, option: 1 }, { optional: 0, option: 2 }]) {
    const wrong = new Set<string>();
    for (let round = 0; round < 3; round++) {
      try {
        const form = new Form(tool.parameters, { ...manner, wrong }).fill();
        const found = await problems(tool, form.value);
        if (found.length === 0) return { wrong: "", asJson: form.asJson.length > 0 };
        complaint ||= `${textOf(found)} in ${JSON.stringify(form.value).slice(0, 200)}`;
        for (const { pointer } of found) wrong.add(pointer);
      } catch (error) {
        complaint ||= String(error);
        break;
      }
    }
  }
  return { wrong: complaint, asJson: false };
}

/** An odd tool: what its fields give is accepted, or is once the JSON of one place is that of the example. */
async function oddly(tool: Tool, { example, json }: Odd): Promise<string[]> {
  const refused = await problems(tool, example);
  if (refused.length > 0) return [`the example is refused: ${textOf(refused)}`];
  if (json === undefined) {
    const { wrong, asJson } = await filled(tool);
    return wrong ? [wrong] : asJson ? ["it needs JSON"] : [];
  }
  const { value } = new Form(tool.parameters, { optional: 0, option: 0 }).fill();
  const left = await problems(tool, withAt(value, json.split("/").slice(1), valueAt(example, json)) ?? {});
  return left.length > 0 ? [`with the JSON of ${json || "/"}: ${textOf(left)}`] : [];
}

function nameOf(file: string): string {
  return file.replace(/-.*/, "");
}
