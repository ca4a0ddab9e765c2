// Frames and memory of the pages of tools and calls in a real browser, with 10,000 tools, 10,000 recorded calls and 200 events a second.

import type { CDPSession, Page } from "../../web/node_modules/playwright-core/index.js";
import { close, open, quit, visible } from "../../web/tests/browser/browser.ts";
import { TestServer } from "../../web/tests/browser/server.ts";
import { load, requestOf } from "./load.ts";
import { quantile, type Row } from "./table.ts";

const calls = 10_000;
const eventsPerSecond = 200;
/** With less the frames say nothing: the server was too slow. */
const leastPerSecond = 190;
const longestFrameMs = 34;
const longSeconds = 600;
const mostGrowth = 10e6;

export async function measureFrames({ seconds, isLong, tools }: { seconds: number; isLong: boolean; tools: number }): Promise<Row[]> {
  const config = Array.from({ length: tools }, (_, index) => `[tools.tool_${index}]\nbuiltin = "calculator"\n`).join("");
  const server = await TestServer.start({ config, startTimeoutMs: 60_000 });
  const request = requestOf("POST", "/api/v1/tools/tool_1/calls", { arguments: { expression: "17+25" } });
  for (let made = 0; made < Math.min(calls, tools); ) made += await load(server.port, request, 32, 500);
  const rows: Row[] = [];
  const events = new Events(server, tools);
  for (const [name, path] of [["tools", "/ui/tools"], ["calls", "/ui/calls"]] as const) {
    const opened = await open(server, path);
    await visible(opened.page.locator("main .page"));
    await opened.page.waitForFunction(() => !document.querySelector(".loading"), undefined, { timeout: 30_000 });
    const debug = await opened.context.newCDPSession(opened.page);
    await pause(2_000);
    events.begin();
    const frames = await framesOf(opened.page, seconds);
    const rate = events.perSecond();
    const long = frames.filter((ms) => ms > longestFrameMs).length;
    const p99 = quantile(frames, 0.99);
    rows.push({
      metric: `frames of the ${name} page: 99 of 100 within (${frames.length} frames, ${long} longer than ${longestFrameMs} ms, longest ${Math.max(...frames).toFixed(0)} ms, ${rate.toFixed(0)} events/s)`,
      measured: `${p99.toFixed(1)} ms`, target: `≤ ${longestFrameMs} ms`, isMet: p99 <= longestFrameMs,
    });
    rows.push({ metric: `events sent while the ${name} page was measured`, measured: `${rate.toFixed(0)}/s`, target: `≥ ${leastPerSecond}/s`, isMet: rate >= leastPerSecond });
    const growth = await growthOf(opened.page, debug, isLong ? longSeconds : 0);
    if (isLong) rows.push({ metric: `heap of the ${name} page after ${longSeconds / 60} minutes`, measured: `+${(growth / 1e6).toFixed(1)} MB`, target: `≤ ${mostGrowth / 1e6} MB`, isMet: growth <= mostGrowth });
    await events.end();
    await close(opened);
  }
  await quit();
  await server.stop();
  return rows;
}

/** Changes statuses of tools, and makes some calls, at a constant rate. */
class Events {
  private readonly server: TestServer;
  private readonly tools: number;
  private timer: ReturnType<typeof setInterval> | undefined;
  private readonly open = new Set<Promise<unknown>>();
  private begun = 0;
  private sent = 0;

  constructor(server: TestServer, tools: number) {
    this.server = server;
    this.tools = tools;
  }

  begin(): void {
    this.begun = performance.now();
    this.sent = 0;
    this.timer = setInterval(() => {
      const due = Math.floor(((performance.now() - this.begun) * eventsPerSecond) / 1_000);
      // A server that is slower than the rate gets no growing queue.
      while (this.sent < due && this.open.size < 200) this.send(this.sent++);
    }, 10);
  }

  perSecond(): number {
    return (this.sent * 1_000) / (performance.now() - this.begun);
  }

  async end(): Promise<void> {
    clearInterval(this.timer);
    await Promise.all(this.open);
  }

  private send(index: number): void {
    const tool = `tool_${(index * 37) % this.tools}`;
    const request = index % 4 === 0 ? this.server.call(tool, { expression: "1+1" }) : this.server.api("PUT", `/api/v1/tools/${tool}/status`, index % 2 ? { status: "maintenance", reason: `change ${index}` } : { status: "available" });
    this.open.add(request);
    void request.finally(() => this.open.delete(request));
  }
}

/** How long each frame took, while somebody scrolls. */
async function framesOf(page: Page, seconds: number): Promise<number[]> {
  await page.evaluate(() => {
    const store = window as unknown as { frames: number[] };
    store.frames = [];
    let before = performance.now();
    const next = (now: number) => {
      store.frames.push(now - before);
      before = now;
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  const end = performance.now() + seconds * 1_000;
  await page.mouse.move(640, 500);
  for (let step = 0; performance.now() < end; step++) {
    await page.mouse.wheel(0, step % 20 < 10 ? 240 : -240);
    await pause(250);
  }
  const frames = await page.evaluate(() => (window as unknown as { frames: number[] }).frames.splice(0));
  return frames.slice(1);
}

/** How many bytes the heap grows in so many seconds, garbage not counted. */
async function growthOf(page: Page, debug: CDPSession, seconds: number): Promise<number> {
  if (seconds === 0) return 0;
  const used = async () => {
    await page.evaluate(() => (window as unknown as { frames: number[] }).frames.splice(0));
    await debug.send("HeapProfiler.collectGarbage");
    return (await debug.send("Runtime.getHeapUsage")).usedSize;
  };
  const before = await used();
  await pause(seconds * 1_000);
  return (await used()) - before;
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
