// What the TypeScript clients of this folder do with a hub that `clients.py` started. Each feature of each mode is a line on stdout.
// The SDKs differ in their imports and in how handlers are registered; `client` is a connected one of either.
import assert from "node:assert/strict";
import path from "node:path";

const DEADLINE = 20_000;
const LONG_TEXT = "0123456789".repeat(1_000);
const [program, address, ...modes] = process.argv.slice(1);
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const textOf = (result) => result.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");

// Runs all modes of the command line at the same time. `connect` takes the mode, the name of the client, the address, the user of the
// client and what hears of changes; it returns the client, and the method of its SDK for a call with options.
export async function runModes(connect) {
  await Promise.all(
    modes.map(async (mode) => {
      const [name, user, changes] = [`${path.parse(program).name}-${mode}`, new User(), new Changes()];
      const { client, call } = await connect({ mode, name, url: new URL(`${address}/mcp/${name}`), user, changes });
      const features = featuresOf(client, call, name, user, changes);
      for (const [feature, check] of Object.entries(features)) await report(`${mode}, ${feature}`, check);
      await client.close();
    }),
  );
}

// Answers forms about approvals.
class User {
  decisions = [];
  forms = [];

  answer({ params }) {
    this.forms.push(params.message);
    assert.deepEqual(params.requestedSchema.required, ["decision"]);
    return { action: "accept", content: { decision: this.decisions.shift() } };
  }
}

// The lists of tools that the client was notified of.
class Changes {
  lists = [];
  wake = () => {};

  add(error, tools) {
    this.lists.push(error ?? tools);
    this.wake();
  }

  async next() {
    while (this.lists.length === 0) await new Promise((resolve) => (this.wake = resolve));
    const list = this.lists.shift();
    if (list instanceof Error) throw list;
    return list.map((tool) => tool.name);
  }
}

async function api(method, path, body) {
  const options = { method, headers: { "Content-Type": "application/json" }, body: body && JSON.stringify(body) };
  const response = await fetch(`${address}/api/v1${path}`, options);
  assert(response.ok, `${method} ${path}: ${response.status}`);
  return response.json();
}

async function cancelledCalls(name) {
  const { items } = await api("GET", "/calls?tool=count&status=cancelled");
  return items.filter((call) => call.arguments.client === name);
}

function featuresOf(client, call, name, user, changes) {
  const switched = `switched-${name}`;
  return {
    async "list tools"() {
      const names = (await client.listTools()).tools.map((tool) => tool.name);
      for (const wanted of ["count", "everything__echo", switched]) assert(names.includes(wanted), wanted);
    },
    async call() {
      assert.equal(textOf(await call("everything__echo", { message: "hello" })), "Echo: hello");
    },
    async "structured output"() {
      const result = await call("everything__get-structured-content", { location: "Chicago" });
      assert.deepEqual(Object.keys(result.structuredContent).sort(), ["conditions", "humidity", "temperature"]);
      assert.deepEqual(JSON.parse(textOf(result)), result.structuredContent);
    },
    async progress() {
      const updates = [];
      const result = await call("count", { client: name, steps: 3 }, { onprogress: (update) => updates.push(update) });
      assert.match(textOf(result), /^counted to 3/);
      // The hub leaves out updates that are too close to others.
      const messages = updates.map((update) => update.message);
      assert(messages.length > 1 && messages.every((message) => /^[123] of 3$/.test(message)), String(messages));
      assert.deepEqual(messages, messages.toSorted());
    },
    async cancel() {
      const controller = new AbortController();
      let onprogress;
      const started = new Promise((resolve) => (onprogress = resolve));
      const running = call("count", { client: name, steps: 1_000 }, { signal: controller.signal, onprogress });
      const end = assert.rejects(running);
      await started;
      assert.deepEqual(await cancelledCalls(name), []);
      controller.abort();
      await end;
      while ((await cancelledCalls(name)).length === 0) await sleep(50);
    },
    async "approval by form"() {
      for (const [decision, folder] of [["proceed_once", `/tmp/old-${name}`], ["cancel", `/tmp/new-${name}`]]) {
        user.decisions.push(decision);
        const result = await call("remove", { folder });
        assert.equal(Boolean(result.isError), decision === "cancel", JSON.stringify(result));
        assert.equal(textOf(result).includes(`${folder} is deleted`), decision === "proceed_once");
        assert(user.forms.pop().includes(folder) && user.forms.length === 0);
      }
    },
    async "list change"() {
      for (const [status, isListed] of [["maintenance", false], ["available", true]]) {
        await api("PUT", `/tools/${switched}/status`, { status });
        assert.equal((await changes.next()).includes(switched), isListed, status);
      }
    },
    async artifact() {
      const result = await call("long_text", {});
      const links = result.content.filter((block) => block.type === "resource_link");
      assert.equal(links.length, 1);
      assert.match(links[0].uri, /^toolhub:\/\/artifacts\//);
      const { contents } = await client.readResource({ uri: links[0].uri });
      assert(contents[0].text.includes(LONG_TEXT));
    },
  };
}

async function report(name, check) {
  const begin = performance.now();
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("too late")), DEADLINE)));
  try {
    await Promise.race([check(), late]);
    console.log(`${name}: ok (${((performance.now() - begin) / 1000).toFixed(1)} s)`);
  } catch (error) {
    console.log(`${name}: FAILED: ${String(error).replaceAll("\n", " ")}`);
  } finally {
    clearTimeout(timer);
  }
}
