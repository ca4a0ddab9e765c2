// Closed-loop clients: each has one keep-alive connection and one request at a time, sends constant bytes and hardly reads the response.

import { connect } from "node:net";

/** Runs for so many milliseconds; returns the number of responses. Each must be a success. */
export async function load(port: number, request: string, clients: number, ms: number): Promise<number> {
  const end = performance.now() + ms;
  const counts = await Promise.all(Array.from({ length: clients }, () => client(port, Buffer.from(request), () => performance.now() < end)));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** The bytes of a request with a body of JSON. */
export function requestOf(method: string, path: string, body: unknown, more = ""): string {
  const text = JSON.stringify(body);
  return `${method} ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n${more}content-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
}

function client(port: number, request: Buffer, goesOn: () => boolean): Promise<number> {
  return new Promise((done, fail) => {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    let count = 0;
    let wanted = 0;
    let got = 0;
    const send = () => {
      wanted = got = 0;
      socket.write(request);
    };
    socket.on("connect", send);
    socket.on("error", fail);
    socket.on("close", () => done(count));
    socket.on("data", (chunk: Buffer) => {
      // A response is small, so its head comes in one piece.
      if (wanted === 0) {
        const head = chunk.toString("latin1", 0, chunk.indexOf("\r\n\r\n"));
        const length = /content-length: (\d+)/i.exec(head)?.[1];
        if (!head.startsWith("HTTP/1.1 20") || length === undefined) return void socket.destroy(new Error(chunk.toString()));
        wanted = head.length + 4 + Number(length);
      }
      got += chunk.length;
      if (got < wanted) return;
      count++;
      if (goesOn()) send();
      else socket.destroy();
    });
  });
}
