import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import type { Json } from "../../src/base/json.ts";
import { pointerOf } from "../../src/base/form.ts";
import { odd } from "../corpus/odd.ts";
import { visible, withPage } from "./browser.ts";
import { place } from "./pages.ts";
import { TestServer, until } from "./server.ts";

/** Texts, numbers and booleans of a value, with their places. */
function leaves(value: Json, path: readonly (string | number)[] = []): [string, Json][] {
  if (Array.isArray(value)) return value.flatMap((inner, index) => leaves(inner, [...path, index]));
  if (typeof value === "object" && value !== null) return Object.entries(value).flatMap(([name, inner]) => leaves(inner, [...path, name]));
  return value === null ? [] : [[pointerOf(path), value]];
}

/** Enters a value in the field of its place; false if the form has none yet. */
async function enter(page: Page, pointer: string, value: Json): Promise<boolean> {
  const chosen = place(page, `${pointer} value`);
  const field = (await chosen.count()) > 0 ? chosen : place(page, pointer);
  if ((await field.count()) === 0) return false;
  const tag = await field.evaluate((element) => element.tagName + element.className);
  if (tag.startsWith("SELECT")) await field.selectOption({ label: String(value) });
  else await field.fill(tag === "TEXTAREAcode" ? JSON.stringify(value) : String(value));
  return true;
}

describe("forms", { concurrency: 1 }, () => {
  let server: TestServer;
  const chosen = odd.map((one, index) => ({ ...one, tool: `odd_${index}` })).filter(({ json }) => json === undefined).filter((_, index) => index % 3 === 0).slice(0, 20);
  before(async () => {
    const program = new URL("../corpus/mcp.ts", import.meta.url).pathname;
    server = await TestServer.start({ config: `[mcp_servers.odd]\ncommand = ${JSON.stringify(process.execPath)}\nargs = [${JSON.stringify(program)}]\ntrust = true\nprefix = ""\n` });
    await until("the tools", async () => (await server.api("GET", `/api/v1/tools/${chosen.at(-1)?.tool}`)).httpStatus === 200, 60_000);
  });
  after(() => server.stop());

  test("the fields of varied schemas take the values that the schemas allow", async () => {
    await withPage(server, "/ui/", async ({ page }) => {
      let direct = 0;
      for (const { name, tool, example } of chosen) {
        await page.goto(`${server.url}/ui/tools/${tool}?tab=try`);
        await visible(page.locator(".try"));
        const json = page.getByRole("button", { name: "JSON", exact: true }).first();
        const form = page.getByRole("button", { name: "Form", exact: true });
        let isWhole = leaves(example).length > 0;
        for (const [pointer, value] of leaves(example)) isWhole = isWhole && (await enter(page, pointer, value));
        if (isWhole) direct++;
        else {
          // What has to be added first: the JSON brings it into the form, and its fields are entered there.
          await json.click();
          await place(page, "").fill(JSON.stringify(example));
          await form.click();
          for (const [pointer, value] of leaves(example)) assert.ok(await enter(page, pointer, value), `${name}: no field for ${pointer}`);
        }
        await page.getByRole("button", { name: "Dry run" }).click();
        const verdict = page.locator(".result .callout strong");
        await visible(verdict);
        assert.notEqual(await verdict.innerText(), "It would be refused.", name);
      }
      assert.ok(direct >= 5, `${direct} forms were filled without JSON`);
    });
  });
});
