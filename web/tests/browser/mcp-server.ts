// A small MCP server over stdio, started by the Toolhub of a test in the folder of that test. The file `description.txt`
// there replaces the description of its first tool, as an update of the program would.
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const send = (message: object) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const description = () => (existsSync("description.txt") ? readFileSync("description.txt", "utf8") : "Reads a file.");
const schema = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };

const answers: Record<string, (parameters: any) => object> = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "test files", version: "1.2.0" } }),
  "tools/list": () => ({ tools: [{ name: "read_file", description: description(), inputSchema: schema }, { name: "list_files", description: "Lists files.", inputSchema: { type: "object" } }] }),
  "tools/call": ({ name }) => ({ content: [{ type: "text", text: name }] }),
  ping: () => ({}),
};

process.stderr.write(`started as ${process.pid}\n`);
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  send(answer ? { id, result: answer(params ?? {}) } : { id, error: { code: -32601, message: "unknown method" } });
});
