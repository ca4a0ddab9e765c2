// A small HTTP proxy: the path prefix in the tests, and the pages in development.
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Proxy {
  url: string;
  close: () => void;
}

type Own = (incoming: IncomingMessage, outgoing: ServerResponse) => boolean | Promise<boolean>;

/** Passes every request to `target`, without `prefix`; `own` may answer some of them instead. */
export async function startProxy(target: string, prefix: string, own: Own = () => false, port = 0): Promise<Proxy> {
  const to = new URL(target);
  const server: Server = createServer(async (incoming, outgoing) => {
    if (!incoming.url?.startsWith(prefix)) return void outgoing.writeHead(404).end("outside the prefix");
    if (await own(incoming, outgoing)) return;
    const headers = { ...incoming.headers };
    // A page of the development server is, for the Toolhub behind it, one of its own.
    if (!prefix) Object.assign(headers, { host: to.host, ...(headers.origin && { origin: to.origin }) });
    const path = incoming.url.slice(prefix.length) || "/";
    const passed = request({ host: to.hostname, port: to.port, path, method: incoming.method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      outgoing.flushHeaders();
      answer.pipe(outgoing);
      answer.on("error", () => outgoing.destroy());
    });
    passed.on("error", () => (outgoing.headersSent ? outgoing.destroy() : outgoing.writeHead(502).end()));
    outgoing.on("close", () => passed.destroy());
    incoming.pipe(passed);
  });
  await new Promise<void>((ready) => server.listen(port, "127.0.0.1", ready));
  const { port: chosen } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${chosen}`,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
