// Drives the real binary with a real browser:
//   TOOLHUB_BIN=… npm run test:browser -- --only approvals
import { existsSync } from "node:fs";
import { after } from "node:test";
import { quit } from "./browser.ts";
import { binary } from "./server.ts";

if (!existsSync(binary)) {
  console.error(`there is no ${binary}; build it with cargo build --bin toolhub, or name another one in TOOLHUB_BIN`);
  process.exit(1);
}
after(quit);

const only = process.argv.indexOf("--only") > 0 ? process.argv[process.argv.indexOf("--only") + 1] : undefined;
for (const name of ["load", "status", "approvals", "keys", "connection", "language", "keyboard", "accessibility", "hostile"]) {
  if (!only || only.split(",").includes(name)) await import(`./${name}.ts`);
}
