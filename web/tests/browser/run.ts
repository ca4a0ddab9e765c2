// Drives the real binary with a real browser:
//   TOOLHUB_BIN=… npm run test:browser -- --only approvals
import { existsSync } from "node:fs";
import { after, describe } from "node:test";
import { quit } from "./browser.ts";
import { binary, TestServer } from "./server.ts";

if (!existsSync(binary)) {
  console.error(`there is no ${binary}; build it with cargo build --bin toolhub, or name another one in TOOLHUB_BIN`);
  process.exit(1);
}

const only = process.argv.indexOf("--only") > 0 ? process.argv[process.argv.indexOf("--only") + 1] : undefined;
// The longest first, so that the last ones end together.
const all = ["accessibility", "threads", "language", "connection", "hostile", "state", "try", "forms", "keys", "status", "servers", "calls", "approvals", "settings", "graph", "keyboard", "charts", "load"];
const chosen = all.filter((name) => !only || only.split(",").includes(name));
const modules = chosen.map((name) => `./${name}.ts`);
// Much of the time is waiting, so more files run beside each other than there are cores.
describe("dashboard", { concurrency: 3 }, async () => {
  // Here, because hooks of the root run only when nothing keeps the process alive.
  after(() => Promise.all([quit(), TestServer.stopAll()]));
  for (const module of modules) await import(module);
});
