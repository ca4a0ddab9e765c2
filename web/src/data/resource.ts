// Values that the page reads from the server, read again when an event says that they changed.
//
// A value remembers when and on which connection it was read. After a loss of the connection it is shown as old until
// it was read again: an old number never looks like a new one.

import { type ReadonlySignal, type Signal, effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type ApiError, toApiError } from "../api/client.ts";
import type { HubEvent } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { connection, onEvent } from "../live/client.ts";

export interface Snapshot<T> {
  value: T;
  /** When it was read, in the server's time. */
  at: number;
  /** The connection on which it was read; 0 without one, -1 once a later reading failed. */
  epoch: number;
  /** Why the value could not be read again. */
  error?: ApiError;
}

export interface ResourceOptions {
  /** Whether the event says that the value changed. */
  changes?: (event: HubEvent) => boolean;
  /** Read it again this often while the page is visible: for what no event reports. */
  everyMs?: number;
  /** Events are followed also while the page is hidden: for what its title says. */
  whileHidden?: boolean;
}

/** After a reading, events cause none for so many times as long. */
const restAfter = 3;
/** A failed reading is tried again this much later. */
const retryMs = 5_000;

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
  private restUntil = 0;
  /** Whether something would have been read, had the page been visible. */
  private isMissed = false;
  private again: ReturnType<typeof setTimeout> | undefined;

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
    const { changes, everyMs, whileHidden } = this.options;
    const isIdle = () => document.hidden && !whileHidden;
    // Many events in a row are one reading. What takes long to read is read less often: the server and the page have more to do.
    const soon = (): void => {
      if (isIdle()) this.isMissed = true;
      else timer ??= setTimeout(readNow, Math.max(150, this.restUntil - performance.now()));
    };
    const readNow = (): void => {
      timer = undefined;
      if (this.reading) void this.reading.then(() => this.users > 0 && soon());
      else void this.read();
    };
    const onVisible = (): void => {
      if (isIdle() || !this.isMissed) return;
      this.isMissed = false;
      void this.read();
    };
    document.addEventListener("visibilitychange", onVisible);
    this.ends.push(() => document.removeEventListener("visibilitychange", onVisible));
    let isFirst = true;
    this.ends.push(
      // While the stream is being opened, reading waits: what is read before could change unseen.
      effect(() => {
        const current = connection.value;
        if (current.state === "connecting") return;
        // A connection that was only silent for a while has missed nothing.
        const isAsBefore = !isFirst && current.state === "live" && this.data.peek()?.epoch === current.epoch;
        isFirst = false;
        if (isAsBefore) return;
        // Without events the value may have changed unseen, too.
        if (current.state !== "lost" || this.data.peek() === null) void this.read();
      }),
    );
    if (changes) this.ends.push(onEvent((event) => changes(event) && soon()));
    if (everyMs) {
      const repeat = setInterval(() => connection.peek().state === "lost" || soon(), everyMs);
      this.ends.push(() => clearInterval(repeat));
    }
    this.ends.push(() => (clearTimeout(timer), clearTimeout(this.again)));
  }

  private end(): void {
    for (const end of this.ends.splice(0)) end();
  }

  private async readUntilClean(): Promise<void> {
    do {
      this.isDirty = false;
      const [epoch, begun] = [currentEpoch(), performance.now()];
      try {
        const value = await this.fetchValue();
        this.data.value = { value, at: serverNow(), epoch };
        this.error.value = null;
      } catch (error) {
        const failure = toApiError(error);
        const before = this.data.peek();
        this.error.value = failure;
        // What is shown may be wrong by now; only a reading that succeeds says what holds.
        if (before) this.data.value = { ...before, epoch: -1, error: failure };
        // A server that could not answer may do so soon, and no event says when.
        clearTimeout(this.again);
        if (this.users > 0 && (failure.status === 0 || failure.status === 429 || failure.status >= 500)) {
          this.again = setTimeout(() => {
            if (document.hidden) this.isMissed = true;
            else if (connection.peek().state !== "lost") void this.read();
          }, retryMs);
        }
      }
      this.restUntil = performance.now() + restAfter * (performance.now() - begun);
    } while (this.isDirty);
  }
}

/** Whether a value is older than the present connection or could not be read again, so that it may have changed unseen. */
export function isOld(snapshot: Snapshot<unknown> | null): boolean {
  const current = connection.value;
  if (!snapshot) return false;
  if (snapshot.epoch < 0) return true;
  if (current.state === "live") return snapshot.epoch !== current.epoch && snapshot.epoch !== 0;
  // Without events, what was read with them may be out of date.
  return current.state === "lost" || (current.state === "refused" && snapshot.epoch !== 0);
}

/** Keeps a resource up to date while the component is shown. */
export function useResource<T>(resource: Resource<T>): ReadonlySignal<Snapshot<T> | null> {
  useEffect(() => resource.use(), [resource]);
  return resource.data;
}
