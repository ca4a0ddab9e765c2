import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { command, curl, python, quoted } from "../src/base/snippets.ts";

const hostile = `it's "quoted" $HOME \`id\` \\ \n 天 ; rm -rf /`;
const call = { server: "http://127.0.0.1:8665", tool: "weather", arguments: { text: hostile, "--x": true, n: null }, threadId: "t 1", needsKey: false };
const body = { arguments: call.arguments, threadId: call.threadId };

/** What a shell makes of a line, as JSON. */
const words = (line: string): string[] => JSON.parse(execFileSync("sh", ["-c", `node -e 'console.log(JSON.stringify(process.argv.slice(1)))' -- ${line}`], { encoding: "utf8" }));

test("a shell reads each value as it is", () => {
  assert.deepEqual(words(quoted(hostile)), [hostile]);
  const curlWords = words(curl(call));
  assert.deepEqual(JSON.parse(curlWords.at(-1) ?? ""), body);
  const commandWords = words(command(call));
  assert.deepEqual(JSON.parse(commandWords[3] ?? ""), call.arguments);
  assert.deepEqual(commandWords.slice(4), ["--thread", "t 1", "--server", "http://127.0.0.1:8665", "--", "weather"]);
  assert.match(curl({ ...call, needsKey: true }), /-H "authorization: Bearer \$TOOLHUB_KEY"/);
});

test("Python reads the same body", () => {
  const program = python(call).split("\n").slice(0, 3).join("\n");
  const printed = execFileSync("python3", ["-c", `${program}\nprint(json.dumps(body))`], { encoding: "utf8" });
  assert.deepEqual(JSON.parse(printed), body);
});
