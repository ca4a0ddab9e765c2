// The page's side of the event stream: the state of the connection, and who listens to which events.

import { effect, signal } from "@preact/signals";
import { base, fileUrl } from "../base/page.ts";
import { withQuery } from "../api/client.ts";
import type { HubEvent } from "../api/types.ts";
import type { Connection, FromStream, ToStream } from "./protocol.ts";
import { EventStream } from "./stream.ts";

export const connection = signal<Connection>({ state: "connecting" });

/** Events of these types are sent. What calls and runs do in detail is not, except progress: a run is read from its own stream, while it
 * is looked at. */
export const types = [
  "call.progress",
  "tool.registered", "tool.unregistered", "tool.status.changed", "hub.*", "approval.*", "mcp.server.*", "node.*",
  "config.reloaded", "store.lost", "run.started", "run.completed", "run.failed", "thread.swept", "stream.thinned", "metrics.tick",
];

const listeners = new Set<(event: HubEvent) => void>();
let toStream: ((message: ToStream) => void) | null = null;

/** Calls `listener` with every event; returns what ends it. */
export function onEvent(listener: (event: HubEvent) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Calls `act` with the number of each new connection, also with that of the present one. */
export function onEpoch(act: (epoch: number) => void): () => void {
  let seen = 0;
  return effect(() => {
    const current = connection.value;
    if (current.state !== "live" || current.epoch === seen) return;
    seen = current.epoch;
    act(seen);
  });
}

function receive(message: FromStream): void {
  if (message.type === "connection") connection.value = message.connection;
  else for (const listener of listeners) listener(message.event);
}

/** Connects; safe to call again, for example after a login. */
export function startStream(): void {
  if (toStream) return toStream({ type: "retry" });
  const url = location.origin + withQuery(`${base}/api/v1/events`, { types: types.join(","), rate: 200 });
  toStream = typeof SharedWorker === "undefined" ? ownStream(url) : sharedStream(url);
  toStream({ type: "hello", url });
  addEventListener("online", () => toStream?.({ type: "retry" }));
}

export const retryStream = (): void => toStream?.({ type: "retry" });

function sharedStream(url: string): (message: ToStream) => void {
  const worker = new SharedWorker(fileUrl("worker.js"), { name: "toolhub events" });
  const send = (message: ToStream) => worker.port.postMessage(message);
  worker.port.onmessage = (message: MessageEvent<FromStream>) => receive(message.data);
  worker.port.start();
  addEventListener("pagehide", () => send({ type: "bye" }));
  // A page that comes back from the browser's cache of pages is not loaded again.
  addEventListener("pageshow", (event) => event.persisted && send({ type: "hello", url }));
  return send;
}

/** Without a SharedWorker each visible page has a stream of its own. */
function ownStream(url: string): (message: ToStream) => void {
  const stream = new EventStream(url, receive);
  document.addEventListener("visibilitychange", () => (document.hidden ? stream.stop() : stream.start()));
  return (message) => (message.type === "hello" ? stream.start() : message.type === "retry" ? stream.retry() : stream.stop());
}
