// The TypeScript SDK 1 as a client of the hub.
//
// usage: typescript1.mjs ADDRESS legacy      in the folder with `node_modules`
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { runModes } from "./scenario.mjs";

const require = createRequire(`${process.cwd()}/`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

await runModes(async ({ name, url, user, changes }) => {
  const client = new Client(
    { name, version: "1.0.0" },
    { capabilities: { elicitation: {} }, listChanged: { tools: { onChanged: (error, tools) => changes.add(error, tools) } } },
  );
  client.setRequestHandler(ElicitRequestSchema, (request) => user.answer(request));
  const transport = new StreamableHTTPClientTransport(url);
  await client.connect(transport);
  assert.equal(transport.protocolVersion, "2025-11-25");
  return { client, call: (tool, args, options) => client.callTool({ name: tool, arguments: args }, undefined, options) };
});
