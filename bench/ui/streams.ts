// What event streams cost: calls per second beside 20 of them, opened as a page opens them, over calls per second without.

import { fork } from "node:child_process";
import { once } from "node:events";
import { TestServer } from "../../web/tests/browser/server.ts";
import { load, requestOf } from "./load.ts";
import { median, type Row } from "./table.ts";

const streams = 20;
const clients = 64;
const leastRatio = 0.95;
const leastRate = 10_000;

export async function measureStreams({ rounds, seconds }: { rounds: number; seconds: number }): Promise<Row[]> {
  const server = await TestServer.start({ config: `[tools.add]\nbuiltin = "calculator"\n` });
  const request = requestOf("POST", "/api/v1/tools/add/calls", { arguments: { expression: "17+25" } });
  const run = async () => (await load(server.port, request, clients, seconds * 1_000)) / seconds;
  const [without, beside, ratios]: [number[], number[], number[]] = [[], [], []];
  await run(); // Warm-up.
  for (let round = 0; round < rounds; round++) {
    // They take turns in going first, because the machine may become faster or slower meanwhile.
    const measured: { [mode: string]: number } = {};
    for (const isWith of round % 2 ? [true, false] : [false, true]) {
      const reader = isWith ? await openStreams(server.url) : null;
      measured[String(isWith)] = await run();
      reader?.kill();
    }
    without.push(measured.false!);
    beside.push(measured.true!);
    ratios.push(measured.true! / measured.false!);
  }
  await server.stop();
  const rate = median(without);
  const ratio = median(ratios);
  return [
    { metric: "calls/s without streams", measured: rate.toFixed(0), target: `≥ ${leastRate}, or the ratio says little`, isMet: rate >= leastRate },
    { metric: `calls/s beside ${streams} event streams`, measured: median(beside).toFixed(0) },
    { metric: "ratio", measured: `${ratio.toFixed(3)} (${Math.min(...ratios).toFixed(3)} to ${Math.max(...ratios).toFixed(3)})`, target: `≥ ${leastRatio}`, isMet: ratio >= leastRatio },
  ];
}

/** A process that reads the streams, so that the clients of the calls do not have to. */
async function openStreams(url: string) {
  const child = fork(new URL("readers.ts", import.meta.url).pathname, [url, String(streams)]);
  await once(child, "message");
  return child;
}
