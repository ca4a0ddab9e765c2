// The connection to the event stream: opens it, reads it, and opens it again after a loss.
//
// In: the address. Out: events and the state of the connection. Runs in the SharedWorker, or in the page where there is none.

import { SseParser } from "../base/sse.ts";
import type { HubEvent } from "../api/types.ts";
import type { Connection, FromStream } from "./protocol.ts";

/** After this long without anything, reports of a second or others, the page says that the connection is lost. */
const silenceMs = 6_000;
/** Such a connection stays open for a while: a busy server goes on with it, and then nothing was missed. */
const patienceMs = 9_000;
/** A connection without reports of each second has a comment every 15 s; silent for longer than this it is dead, too. */
const longestSilenceMs = 35_000;
/** How long the server may take to begin. */
const openingMs = 15_000;
const firstDelayMs = 500;
const longestDelayMs = 10_000;

export class EventStream {
  private readonly url: string;
  private readonly emit: (message: FromStream) => void;
  private connection: Connection = { state: "connecting" };
  /** Not from 0: pages compare it with that of an earlier stream. */
  private epoch = Date.now();
  private lastId: string | null = null;
  private delay = firstDelayMs;
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isStopped = false;

  constructor(url: string, emit: (message: FromStream) => void) {
    this.url = url;
    this.emit = emit;
  }

  get current(): Connection {
    return this.connection;
  }

  start(): void {
    this.isStopped = false;
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = new AbortController();
    void this.run(this.abort);
  }

  /** Connects at once instead of at the next attempt; does nothing while events arrive. */
  retry(): void {
    if (this.connection.state === "live") return;
    this.delay = firstDelayMs;
    this.start();
  }

  stop(): void {
    this.isStopped = true;
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  private set(connection: Connection): void {
    this.connection = connection;
    this.emit({ type: "connection", connection });
  }

  private async run(abort: AbortController): Promise<void> {
    let silence: ReturnType<typeof setTimeout> | undefined;
    const endAfter = (ms: number) => (silence = setTimeout(() => abort.abort(), ms));
    const heard = (hasTicks: boolean) => {
      clearTimeout(silence);
      const at = Date.now();
      if (this.connection.state === "lost") this.set({ state: "live", epoch: this.epoch });
      if (!hasTicks) return void endAfter(longestSilenceMs);
      silence = setTimeout(() => {
        this.set({ state: "lost", since: at, nextAttempt: Date.now() + patienceMs });
        endAfter(patienceMs);
      }, silenceMs);
    };
    let status = 0;
    try {
      endAfter(openingMs);
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (this.lastId) headers["last-event-id"] = this.lastId;
      const response = await fetch(this.url, { headers, signal: abort.signal, credentials: "same-origin", cache: "no-store" });
      status = response.status;
      if (response.ok && response.body) {
        this.delay = firstDelayMs;
        this.set({ state: "live", epoch: ++this.epoch });
        await this.read(response.body, heard);
      }
    } catch {
      // The connection ended: nothing arrived, it broke, or it was silent for too long.
    }
    clearTimeout(silence);
    if (this.isStopped || this.abort !== abort) return;
    if (status === 401 || status === 403) return this.set({ state: "refused", status });
    this.waitForNext();
  }

  private async read(body: ReadableStream<Uint8Array>, heard: (hasTicks: boolean) => void): Promise<void> {
    let hasTicks = false;
    heard(hasTicks);
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard(hasTicks);
      for (const { id, event, data } of parser.feed(decoder.decode(value, { stream: true }))) {
        if (id !== null) this.lastId = id;
        const parsed = parseEvent(event, data);
        if (parsed === null) continue;
        if (parsed.event === "metrics.tick" && !hasTicks) heard((hasTicks = true));
        // Events were missed: everything must be read again, as after a new connection.
        if (event === "stream.reset") this.set({ state: "live", epoch: ++this.epoch });
        else this.emit({ type: "event", event: parsed });
      }
    }
  }

  private waitForNext(): void {
    const before = this.connection;
    const wait = this.delay * (0.75 + Math.random() / 2);
    this.delay = Math.min(this.delay * 2, longestDelayMs);
    this.set({ state: "lost", since: before.state === "lost" ? before.since : Date.now(), nextAttempt: Date.now() + wait });
    this.timer = setTimeout(() => this.start(), wait);
  }
}

function parseEvent(name: string, data: string): HubEvent | null {
  try {
    const event = JSON.parse(data) as HubEvent;
    return typeof event === "object" && event !== null ? { ...event, event: event.event ?? name } : null;
  } catch {
    return null;
  }
}
