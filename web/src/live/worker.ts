// The SharedWorker: one event stream for all tabs. A browser opens at most six connections to a server of HTTP/1.1, so
// a stream per tab would block the seventh tab.

import { EventStream } from "./stream.ts";
import type { FromStream, ToStream } from "./protocol.ts";

interface SharedWorkerScope {
  onconnect: ((event: MessageEvent) => void) | null;
}

const ports = new Set<MessagePort>();
let stream: EventStream | null = null;

function toAll(message: FromStream): void {
  for (const port of ports) port.postMessage(message);
}

function receive(port: MessagePort, message: ToStream): void {
  if (message.type === "bye") {
    ports.delete(port);
    // The browser ends the worker some time after its last page; the stream need not last that long.
    if (ports.size === 0) {
      stream?.stop();
      stream = null;
    }
  } else if (message.type === "retry") stream?.retry();
  else {
    ports.add(port);
    if (stream === null) {
      stream = new EventStream(message.url, toAll);
      stream.start();
    } else if (stream.current.state === "refused") stream.retry();
    port.postMessage({ type: "connection", connection: stream.current } satisfies FromStream);
  }
}

(globalThis as unknown as SharedWorkerScope).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  port.onmessage = (message: MessageEvent<ToStream>) => receive(port, message.data);
  port.start();
};
