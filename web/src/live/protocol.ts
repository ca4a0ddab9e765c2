// What the worker that owns the event stream and the pages say to each other.

import type { HubEvent } from "../api/types.ts";

export type Connection =
  /** Connecting for the first time. */
  | { state: "connecting" }
  /** Events arrive. `epoch` grows with every new connection: what was read before may be out of date. */
  | { state: "live"; epoch: number }
  /** Nothing has arrived since `since`; the next attempt is at `nextAttempt`. Times of this machine. */
  | { state: "lost"; since: number; nextAttempt: number }
  /** The server does not know who asks (401) or does not let them (403). Nothing is tried until `retry`. */
  | { state: "refused"; status: number };

export type FromStream =
  | { type: "connection"; connection: Connection }
  | { type: "event"; event: HubEvent };

export type ToStream =
  /** A page is there; the first one starts the stream. */
  | { type: "hello"; url: string }
  /** Connect at once. */
  | { type: "retry" }
  /** The page is closed. */
  | { type: "bye" };
