// Reads server-sent events from the text of a response.
//
// EventSource is not used: it cannot send Last-Event-ID on a connection that the page opens anew, and it hides the
// status of a refused one.

export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

/** Feed it the text as it comes; it returns the events that are complete. */
export class SseParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id: string | null = null;

  feed(chunk: string): ServerEvent[] {
    this.rest += chunk;
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) events.push({ id: this.id, event: this.event || "message", data: this.data.join("\n") });
        this.event = "";
        this.data = [];
        this.id = null;
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
      if (field === "event") this.event = value;
      else if (field === "data") this.data.push(value);
      else if (field === "id") this.id = value;
    }
    return events;
  }
}
