// The server's time. A browser's clock may be wrong, and countdowns go by the server's.

import { signal } from "@preact/signals";

let offset = 0;
let isMeasured = false;

/** Takes the time of a response. `Date` has whole seconds, so small differences are not believed. */
export function observeServerTime(header: string | null): void {
  const time = header ? Date.parse(header) : NaN;
  if (Number.isNaN(time)) return;
  const difference = time + 500 - Date.now();
  if (!isMeasured || Math.abs(difference - offset) > 1500) offset = Math.abs(difference) < 1500 ? 0 : difference;
  isMeasured = true;
}

export const serverNow = (): number => Date.now() + offset;

/** The server's time, once a second, for countdowns and ages. */
export const now = signal(serverNow());

export function startClock(): void {
  setInterval(() => (now.value = serverNow()), 1000);
}
