// Values that the page reads from the server, read again when an event says that they changed.
//
// A value remembers when and on which connection it was read. After a loss of the connection it is shown as old until
// it was read again: an old number never looks like a new one.

import { type ReadonlySignal, type Signal, effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../api/client.ts";
import type { HubEvent } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { connection, onEvent } from "../live/client.ts";

export interface Snapshot<T> {
  value: T;
  /** When it was read, in the server's time. */
  at: number;
  epoch: number;
}

export interface ResourceOptions {
  /** Whether the event says that the value changed. */
  changes?: (event: HubEvent) => boolean;
  /** Read it again this often while the page is visible: for what no event reports. */
  everyMs?: number;
}

const currentEpoch = (): number => (connection.peek().state === "live" ? (connection.peek() as { epoch: number }).epoch : 0);

export class Resource<T> {
  readonly data: Signal<Snapshot<T> | null> = signal(null);
  readonly error: Signal<ApiError | null> = signal(null);
  private readonly fetchValue: () => Promise<T>;
  private readonly options: ResourceOptions;
  private users = 0;
  private reading: Promise<void> | null = null;
  private isDirty = false;
  private ends: (() => void)[] = [];

  constructor(fetchValue: () => Promise<T>, options: ResourceOptions = {}) {
    this.fetchValue = fetchValue;
    this.options = options;
  }

  /** Reads the value. Asked for again during a reading, it is read once more afterwards. */
  read(): Promise<void> {
    if (this.reading) {
      this.isDirty = true;
      return this.reading;
    }
    this.reading = this.readUntilClean().finally(() => (this.reading = null));
    return this.reading;
  }

  /** Replaces the value, for example by the answer to a change. */
  set(change: (value: T) => T): void {
    const before = this.data.peek();
    if (before) this.data.value = { ...before, value: change(before.value) };
  }

  /** Keeps the value up to date until the returned function is called. */
  use(): () => void {
    if (this.users++ === 0) this.begin();
    return () => {
      if (--this.users === 0) this.end();
    };
  }

  private begin(): void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Many events in a row are one reading.
    const soon = () => (timer ??= setTimeout(() => ((timer = undefined), void this.read()), 150));
    const { changes, everyMs } = this.options;
    this.ends.push(
      // While the stream is being opened, reading waits: what is read before could change unseen.
      effect(() => {
        const current = connection.value;
        if (current.state === "connecting") return;
        if (current.state === "live" || this.data.peek() === null) void this.read();
      }),
    );
    if (changes) this.ends.push(onEvent((event) => changes(event) && soon()));
    if (everyMs) {
      const repeat = setInterval(() => document.hidden || connection.peek().state === "lost" || void this.read(), everyMs);
      this.ends.push(() => clearInterval(repeat));
    }
    this.ends.push(() => clearTimeout(timer));
  }

  private end(): void {
    for (const end of this.ends.splice(0)) end();
  }

  private async readUntilClean(): Promise<void> {
    do {
      this.isDirty = false;
      const epoch = currentEpoch();
      try {
        const value = await this.fetchValue();
        this.data.value = { value, at: serverNow(), epoch };
        this.error.value = null;
      } catch (error) {
        this.error.value = error instanceof ApiError ? error : new ApiError(0, String(error));
      }
    } while (this.isDirty);
  }
}

/** Whether a value is older than the present connection, so that it may have changed unseen. */
export function isOld(snapshot: Snapshot<unknown> | null): boolean {
  const current = connection.value;
  if (!snapshot) return false;
  if (current.state === "live") return snapshot.epoch !== current.epoch && snapshot.epoch !== 0;
  return current.state === "lost";
}

/** Keeps a resource up to date while the component is shown. */
export function useResource<T>(resource: Resource<T>): ReadonlySignal<Snapshot<T> | null> {
  useEffect(() => resource.use(), [resource]);
  return resource.data;
}
