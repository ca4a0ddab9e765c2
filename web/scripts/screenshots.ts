// Takes a picture of every page in both themes, languages and widths, into the folder screenshots:
//   npm run screenshots -- --bin ../target/ci/toolhub [--only overview,tools] [--quick]
import { mkdir } from "node:fs/promises";
import { parseArgs } from "node:util";

const { values } = parseArgs({ options: { bin: { type: "string" }, only: { type: "string" }, quick: { type: "boolean" } } });
// Absolute, because the server is started in a folder of its own.
if (values.bin) process.env.TOOLHUB_BIN = values.bin;
const { launch, newContext, quit } = await import("../tests/browser/browser.ts");
const { fill, richConfig, show } = await import("../tests/browser/pages.ts");
const { TestServer } = await import("../tests/browser/server.ts");

const folder = new URL("../screenshots", import.meta.url).pathname;
const [server, locked] = [await TestServer.start({ config: richConfig }), await TestServer.start({ keys: true })];
const pages = (await fill(server)).filter(({ name }) => !values.only || values.only.split(",").includes(name));
await mkdir(folder, { recursive: true });
await launch();
for (const width of [1280, 390]) {
  for (const theme of ["light", "dark"] as const) {
    for (const language of ["en", "zh"] as const) {
      // A quick look: each theme, language and width once.
      if (values.quick && (theme === "dark") !== (language === "zh")) continue;
      const context = await newContext({ language, theme, viewport: { width, height: width === 390 ? 844 : 800 } });
      const page = await context.newPage();
      const picture = (name: string) => page.screenshot({ path: `${folder}/${name}-${width}-${theme}-${language}.png`, fullPage: true });
      for (const shown of pages) {
        await show(page, server, shown);
        await page.evaluate(() => scrollTo(0, 0));
        await picture(shown.name);
      }
      await page.goto(`${locked.url}/ui/`);
      await page.locator("input[name=key]").waitFor();
      await picture("login");
      await context.close();
    }
  }
}
// A lost connection shows old numbers; last, because the server does not come back.
const context = await newContext();
const page = await context.newPage();
await page.goto(`${server.url}/ui/`);
await page.locator(".tile").first().waitFor();
await server.kill();
await page.locator("[data-bar=lost]").waitFor();
await page.screenshot({ path: `${folder}/lost.png`, fullPage: true });
await quit();
await server.stop();
await locked.stop();
console.log(`pictures are in ${folder}`);
