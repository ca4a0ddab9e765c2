import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { Connection, FromStream } from "../src/live/protocol.ts";
import { EventStream } from "../src/live/stream.ts";

/** A stream of which the test says what arrives, and when. */
function begin() {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const bodies: ReadableStreamDefaultController<Uint8Array>[] = [];
  const before = globalThis.fetch;
  globalThis.fetch = ((_: string, { signal }: RequestInit) => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        bodies.push(controller);
        signal!.addEventListener("abort", () => controller.error(new Error("aborted")));
      },
    });
    return Promise.resolve(new Response(body));
  }) as typeof fetch;
  const states: Connection[] = [];
  const stream = new EventStream("http://server/events", (message: FromStream) => message.type === "connection" && states.push(message.connection));
  stream.start();
  const settle = async () => {
    for (let turn = 0; turn < 20; turn++) await new Promise((next) => setImmediate(next));
  };
  return {
    bodies,
    seen: () => states.map(({ state }) => state),
    epochs: () => states.flatMap((one) => (one.state === "live" ? one.epoch : [])),
    say: async (text: string) => (bodies.at(-1)!.enqueue(new TextEncoder().encode(text)), settle()),
    pass: async (ms: number) => (mock.timers.tick(ms), settle()),
    settle,
    end: () => {
      stream.stop();
      mock.timers.reset();
      globalThis.fetch = before;
    },
  };
}

const tick = 'event: metrics.tick\ndata: {"event":"metrics.tick","timestamp":""}\n\n';

test("a connection whose reports of each second stop is lost after seconds, live again as it was when they go on, and opened anew if not", async () => {
  const { bodies, seen, epochs, say, pass, settle, end } = begin();
  await settle();
  await say(tick);
  await pass(5_000);
  assert.deepEqual(seen(), ["live"]);
  await pass(2_000);
  assert.deepEqual(seen(), ["live", "lost"]);
  await say(tick);
  assert.deepEqual(seen(), ["live", "lost", "live"]);
  assert.equal(new Set(epochs()).size, 1, "nothing was missed, so nothing needs to be read again");
  assert.equal(bodies.length, 1);
  await pass(6_000);
  await pass(9_000);
  await pass(1_000);
  assert.equal(bodies.length, 2);
  assert.equal(seen().at(-1), "live");
  assert.equal(new Set(epochs()).size, 2);
  end();
});

test("a server that sends no reports of each second may be silent between its comments", async () => {
  const { bodies, seen, say, pass, settle, end } = begin();
  await settle();
  await say(": still here\n\n");
  await pass(20_000);
  assert.deepEqual(seen(), ["live"]);
  await pass(15_000);
  await pass(1_000);
  assert.deepEqual([seen(), bodies.length], [["live", "lost", "live"], 2]);
  end();
});
