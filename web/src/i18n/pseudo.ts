// A language in which every text is marked: ⟦like this⟧. A text on the page without the marks was not taken from the messages.

import type { Messages } from "./en.ts";

export const open = "⟦";
export const close = "⟧";

function mark(value: unknown): unknown {
  if (typeof value === "string") return `${open}${value}${close}`;
  if (typeof value === "function") return (...parameters: unknown[]) => mark((value as (...all: unknown[]) => unknown)(...parameters));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, mark(member)]));
}

export const pseudo = (messages: Messages): Messages => mark(messages) as Messages;
