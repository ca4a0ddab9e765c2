// A tool with a state: takes notes, and reads them out. The process lives as long as its thread.
import { createInterface } from "node:readline";

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

for await (const line of createInterface({ input: process.stdin })) {
  const { id, arguments: { note, read }, state: { notes = [] } } = JSON.parse(line);
  if (note) {
    say({ progress: `writing note ${notes.length + 1}` });
    say({ id, result: notes.length + 1, state: { notes: [...notes, note] } });
  } else if (read <= notes.length && read > 0) {
    say({ id, result: notes[read - 1] });
  } else {
    // The process goes on, and the state stays as it was.
    say({ id, error: { kind: "refused", message: `there are ${notes.length} notes; read one of them` } });
  }
}
