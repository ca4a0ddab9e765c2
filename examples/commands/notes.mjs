// A stateful tool: stores notes and reads them back. One process per thread.
import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(JSON.stringify(message) + "\n");

for await (const line of createInterface({ input: process.stdin })) {
  const { id, arguments: { note, read }, state: { notes = [] } } = JSON.parse(line);
  if (note) {
    send({ progress: `writing note ${notes.length + 1}` });
    send({ id, result: notes.length + 1, state: { notes: [...notes, note] } });
  } else if (read <= notes.length && read > 0) {
    send({ id, result: notes[read - 1] });
  } else {
    // The process continues, and the state is unchanged.
    send({ id, error: { kind: "refused", message: `there are ${notes.length} notes; read one of them` } });
  }
}
