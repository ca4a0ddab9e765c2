// Builds the page into crates/server/ui, byte for byte the same from the same source.
import { copyFile, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const maxGzip = 110_000;
const web = new URL("..", import.meta.url).pathname;
const out = process.argv[2] ?? new URL("../../crates/server/ui", import.meta.url).pathname;

await mkdir(out, { recursive: true });
for (const file of await readdir(out)) await rm(`${out}/${file}`);
await build({
  absWorkingDir: web,
  entryPoints: { app: "src/main.tsx", worker: "src/live/worker.ts", "app-style": "src/style/app.css" },
  outdir: out,
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "esm",
  // light-dark() and the nesting of selectors stay as they are.
  target: ["chrome123", "firefox121", "safari17.5"],
  charset: "utf8",
  legalComments: "none",
  banner: { js: "// Built by web/build; do not edit." , css: "/* Built by web/build; do not edit. */" },
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
await copyFile(`${out}/app-style.css`, `${out}/app.css`);
await rm(`${out}/app-style.css`);
for (const file of ["index.html", "icon.svg"]) await copyFile(`${web}src/${file}`, `${out}/${file}`);

let total = 0;
for (const file of (await readdir(out)).sort()) {
  const content = await readFile(`${out}/${file}`);
  const size = gzipSync(content, { level: 9 }).length;
  total += size;
  console.log(`${file.padEnd(12)} ${String(content.length).padStart(8)} bytes ${String(size).padStart(7)} gzip`);
}
console.log(`${"total".padEnd(12)} ${" ".repeat(14)} ${String(total).padStart(7)} gzip`);
if (total > maxGzip) {
  console.error(`the build is larger than ${maxGzip} bytes`);
  process.exit(1);
}
