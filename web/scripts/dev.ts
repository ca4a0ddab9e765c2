// Serves the page from its source, and everything else from a running Toolhub in local mode:
//   npm run dev -- http://127.0.0.1:8665
// Every load of the page builds it anew.
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { startProxy } from "./proxy.ts";

const target = process.argv[2] ?? "http://127.0.0.1:8665";
const port = Number(process.argv[3] ?? 8666);
const folder = await mkdtemp(`${tmpdir()}/toolhub-ui-`);
const types: Record<string, string> = { js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const build = () => execFileSync(process.execPath, ["--disable-warning=ExperimentalWarning", new URL("build.ts", import.meta.url).pathname, folder], { stdio: "inherit" });

const proxy = await startProxy(target, "", async (incoming, outgoing) => {
  const path = (incoming.url ?? "").split("?")[0] ?? "";
  const file = /^\/ui\/dev\/([a-z.]+)$/.exec(path)?.[1];
  if (file) {
    outgoing.writeHead(200, { "content-type": types[file.split(".").pop() ?? ""] ?? "text/plain", "cache-control": "no-store" });
    outgoing.end(await readFile(`${folder}/${file}`));
    return true;
  }
  const isPage = incoming.method === "GET" && (path === "/ui" || path.startsWith("/ui/")) && incoming.headers["sec-fetch-dest"] === "document";
  if (!isPage) return false;
  build();
  const html = (await readFile(`${folder}/index.html`, "utf8")).replaceAll("{{base}}", "").replaceAll("{{version}}", "dev");
  outgoing.writeHead(200, { "content-type": "text/html; charset=utf-8", "cache-control": "no-store" }).end(html);
  return true;
}, port);
console.log(`${proxy.url}/ui/ shows the page of this folder with the data of ${target}`);
