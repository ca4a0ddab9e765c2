// An MCP server over stdio whose tools have the schemas of odd.ts.

import { createInterface } from "node:readline";
import { odd } from "./odd.ts";

const tools = odd.map(({ name, schema }, index) => ({ name: `odd_${index}`, description: name, inputSchema: schema, annotations: { readOnlyHint: true } }));

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result =
    method === "initialize" ? { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "odd", version: "1" } }
    : method === "tools/list" ? { tools }
    : method === "ping" ? {}
    : undefined;
  const answer = result ? { result } : { error: { code: -32601, message: `unknown method ${method}` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
});
