// What a person typed into the form of a tool, and the calls that it started. Kept while the page is open, whatever else is looked at.

import { signal } from "@preact/signals";
import { ApiError } from "../api/client.ts";
import type { Tool } from "../api/types.ts";
import { newKey } from "../base/idempotency.ts";
import type { Json } from "../base/json.ts";
import { startCall } from "./calls.ts";

export interface TryDraft {
  value: Json;
  threadId: string;
  view: "form" | "json";
  /** Texts of fields for JSON that are not JSON yet, by JSON pointer. */
  typed: Map<string, string>;
  /** The newest call that was started here, and older ones that had not ended when it began. */
  started: readonly { id: string; hasEnded: boolean }[];
  /** A request whose answer was lost: the same call that is sent again must have one effect. */
  attempt: { key: string; of: string } | null;
}

export const newTryDraft = (value: Json, threadId: string): TryDraft => ({ value, threadId, view: "form", typed: new Map(), started: [], attempt: null });

/** By the name of the form: the tool and what the form began with. */
export const tryDrafts = signal<Readonly<Record<string, TryDraft>>>({});

export function setTryDraft(name: string, draft: TryDraft | null): void {
  const { [name]: _, ...others } = tryDrafts.peek();
  tryDrafts.value = draft ? { ...others, [name]: draft } : others;
}

/** Whether the server said what became of a request; a proxy may answer in its place. */
const isAnswer = (failure: unknown): boolean => failure instanceof ApiError && failure.code !== "" && failure.code !== "idempotency_in_progress";

/** Starts the call of a draft. Calls that change nothing have no key, because with one the cache would not answer. */
export async function runDraft(tool: Tool, draft: TryDraft, change: (next: Partial<TryDraft>) => void): Promise<void> {
  const threadId = draft.threadId.trim();
  const of = JSON.stringify([draft.value, threadId]);
  const attempt = draft.attempt?.of === of ? draft.attempt : { key: newKey(), of };
  change({ attempt });
  try {
    const { id } = await startCall(tool.name, draft.value, threadId, tool.annotations.readOnly ? "" : attempt.key);
    change({ attempt: null, started: [{ id, hasEnded: false }, ...draft.started.filter((one) => !one.hasEnded && one.id !== id)] });
  } catch (failure) {
    if (isAnswer(failure)) change({ attempt: null });
    throw failure;
  }
}
