// Moments, ages and time left. All of them change by the clock of the page, not by reading anything again.

import { now, serverNow } from "../base/clock.ts";
import { clockTime, countdown, dateTime } from "../base/format.ts";
import { language, texts } from "../i18n/index.ts";

const parse = (at: string | number): number => (typeof at === "number" ? at : Date.parse(at));

/** A moment: the time of day if it was today, else with its date; all of it as a hint. */
export function Time({ at }: { at: string | number }) {
  const time = parse(at);
  const full = dateTime(time, language.value);
  const isToday = full.slice(0, 10) === dateTime(now.value, language.value).slice(0, 10);
  return (
    <time dateTime={new Date(time).toISOString()} title={full}>
      {isToday ? clockTime(time, language.value) : full}
    </time>
  );
}

/** How long ago something happened. */
export function Ago({ at }: { at: string | number }) {
  const time = parse(at);
  return (
    <time dateTime={new Date(time).toISOString()} title={dateTime(time, language.value)}>
      {texts.value.common.ago(Math.max(0, now.value - time))}
    </time>
  );
}

/** The time left until a moment, as 4:05. */
export function Countdown({ until, label }: { until: string | number; label?: string }) {
  const time = parse(until);
  // Shown anew with each tick, but by the present time: a tick may be a second old.
  void now.value;
  const left = countdown(time - serverNow());
  return (
    <time class="countdown" dateTime={new Date(time).toISOString()} title={label ? `${label} ${left}` : dateTime(time, language.value)}>
      {left}
    </time>
  );
}
