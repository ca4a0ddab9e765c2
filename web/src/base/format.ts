// Times, durations, numbers and sizes as text.

import { signal } from "@preact/signals";
import { stored } from "./storage.ts";

/** A zone that the browser knows, else "": a stored one may be from another browser or changed by hand. */
export function knownZone(zone: string | null): string {
  try {
    return zone && new Intl.DateTimeFormat("en", { timeZone: zone }) ? zone : "";
  } catch {
    return "";
  }
}

/** An IANA time zone, or "" for the browser's. */
export const timeZone = signal(knownZone(stored("timeZone")));

const formats = new Map<string, Intl.DateTimeFormat>();

function format(language: string, withDate: boolean): Intl.DateTimeFormat {
  const zone = timeZone.value;
  const key = `${language} ${zone} ${withDate}`;
  let found = formats.get(key);
  if (!found) {
    const options: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
    if (withDate) Object.assign(options, { year: "numeric", month: "2-digit", day: "2-digit" });
    if (zone) options.timeZone = zone;
    found = new Intl.DateTimeFormat(language === "zh" ? "zh-CN" : "en-CA", options);
    formats.set(key, found);
  }
  return found;
}

export const dateTime = (time: number, language: string): string => format(language, true).format(time).replace(",", "");
export const clockTime = (time: number, language: string): string => format(language, false).format(time);

/** The milliseconds since midnight, in the chosen time zone. */
export function timeOfDay(time: number, language: string): number {
  const [hours = 0, minutes = 0, seconds = 0] = clockTime(time, language).split(":").map(Number);
  return ((hours * 60 + minutes) * 60 + seconds) * 1000 + (time % 1000);
}

/** A time left as 4:05, 1:02:03 or 2 d 0:30:00; never negative. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const two = (value: number) => String(value).padStart(2, "0");
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  const time = days + hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
  return days > 0 ? `${days} d ${time}` : time;
}

/** A duration as 0.4 ms, 812 ms, 4.8 s, 3 min, 2 h, 5 d: units that are the same in every language. */
export function duration(ms: number): string {
  const digits = (value: number) => (value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(value < 1 ? 1 : 2))));
  if (ms < 1000) return `${ms > 0 && ms < 0.01 ? "<0.01" : digits(ms)} ms`;
  if (ms < 120_000) return `${digits(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

export function number(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 10_000) {
    const [unit, size] = value >= 1e9 ? ["G", 1e9] : value >= 1e6 ? ["M", 1e6] : ["k", 1e3];
    return `${Number((value / (size as number)).toPrecision(3))}${unit}`;
  }
  return Number.isInteger(value) ? String(value) : value >= 100 ? value.toFixed(0) : String(Number(value.toFixed(value < 1 ? 2 : 1)));
}

export const percent = (part: number, whole: number): string => (whole > 0 ? `${number((100 * part) / whole)} %` : "–");

export function bytes(value: number): string {
  const [unit, size] = value >= 1 << 20 ? ["MiB", 1 << 20] : value >= 1024 ? ["KiB", 1024] : ["B", 1];
  return `${Number((value / (size as number)).toPrecision(3))} ${unit}`;
}
