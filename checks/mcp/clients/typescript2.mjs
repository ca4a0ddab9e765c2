// The TypeScript SDK 2 as a client of the hub.
//
// usage: typescript2.mjs ADDRESS MODE…      MODE: auto, legacy, modern; in the folder with `node_modules`
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { runModes } from "./scenario.mjs";

const { Client, StreamableHTTPClientTransport } = createRequire(`${process.cwd()}/`)("@modelcontextprotocol/client");
const VERSIONS = { auto: "2026-07-28", legacy: "2025-11-25", modern: "2026-07-28" };

await runModes(async ({ mode, name, url, user, changes }) => {
  const client = new Client(
    { name, version: "1.0.0" },
    {
      capabilities: { elicitation: { form: {} } },
      versionNegotiation: { mode: mode === "modern" ? { pin: VERSIONS.modern } : mode },
      listChanged: { tools: { onChanged: (error, tools) => changes.add(error, tools) } },
    },
  );
  client.setRequestHandler("elicitation/create", (request) => user.answer(request));
  await client.connect(new StreamableHTTPClientTransport(url));
  assert.equal(client.getNegotiatedProtocolVersion(), VERSIONS[mode]);
  return { client, call: (tool, args, options) => client.callTool({ name: tool, arguments: args }, options) };
});
