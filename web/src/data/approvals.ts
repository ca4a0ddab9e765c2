// Approvals that wait, those that were answered, and standing grants.

import { computed, signal } from "@preact/signals";
import { get, getAll, post, remove, segment, withQuery } from "../api/client.ts";
import type { AnswerBody, Approval, Call, Grant, HubEvent, Message, Page } from "../api/types.ts";
import { PagedResource } from "./paged.ts";
import { Resource } from "./resource.ts";

const changesApprovals = ({ event }: HubEvent): boolean => event.startsWith("approval.");

/** Approvals that wait for an answer, the one that expires first at the top. */
export const pending = new Resource<Approval[]>(
  async () => (await getAll<Approval>("/api/v1/approvals?state=pending", 2000)).sort((a, b) => a.expiresAt.localeCompare(b.expiresAt)),
  { changes: changesApprovals, everyMs: 60_000, whileHidden: true },
);

export const pendingCount = computed(() => pending.data.value?.value.length ?? 0);

/** The most that the server gives at once. */
const partSize = 500;

/** Approvals that no longer wait, newest first. Any number of newer ones may wait, so those are read in larger parts. */
export const answered = (): PagedResource<Approval> =>
  new PagedResource(
    async (limit, cursor) => {
      const page = await get<Page<Approval>>(withQuery("/api/v1/approvals", { limit: cursor ? partSize : limit, cursor }));
      return { ...page, items: page.items.filter((approval) => approval.state !== "pending") };
    },
    { changes: changesApprovals },
  );

export const recent = answered();

export const grants = new Resource<Grant[]>(() => getAll<Grant>("/api/v1/grants"), {
  changes: (event) => event.event === "approval.resolved" || event.event === "config.reloaded",
});

// A person approves the numbers that were sent, not rounded ones.
const exact = ["arguments"];

export const approvalOf = (id: string): Resource<Approval> =>
  new Resource(() => get<Approval>(`/api/v1/approvals/${segment(id)}`, { exact }), { changes: (event) => changesApprovals(event) && event.approvalId === id });

export const answerApproval = (id: string, answer: AnswerBody): Promise<Approval> => post(`/api/v1/approvals/${segment(id)}`, answer, {}, { exact });
export const revokeGrant = (id: string): Promise<void> => remove(`/api/v1/grants/${segment(id)}`);

/** What led to the question: the last messages of the conversation, and its last calls. */
export interface Conversation {
  messages: Message[];
  calls: Call[];
}

/** Messages come oldest first, so the last ones are behind all others; a longer conversation shows its last calls only. */
const maxPages = 10;

export async function conversationOf(threadId: string): Promise<Conversation> {
  const path = `/api/v1/threads/${segment(threadId)}/messages`;
  let messages: Message[] = [];
  let cursor: string | null | undefined = "";
  for (let page = 0; page < maxPages && cursor !== null && cursor !== undefined; page++) {
    const answer: Page<Message> = await get(withQuery(path, { limit: 500, cursor }));
    messages = [...messages, ...answer.items].slice(-6);
    cursor = answer.nextCursor;
  }
  const calls = await get<Page<Call>>(withQuery("/api/v1/calls", { threadId, view: "short", limit: 6 }));
  return { messages: cursor ? [] : messages, calls: calls.items };
}

/** What a person typed about an approval. Kept while the page is open, whatever happens to the approval meanwhile. */
export interface Draft {
  mode: "none" | "edit" | "deny";
  /** How the arguments are edited. */
  view: "form" | "json";
  text: string;
  reason: string;
  /** The long values that were opened, and how often more of each was asked for. */
  opened: Readonly<Record<string, number>>;
  /** The long values that a person allows without having read all of them. */
  unread: readonly string[];
}

const emptyDraft: Draft = { mode: "none", view: "form", text: "", reason: "", opened: {}, unread: [] };
export const drafts = signal<Readonly<Record<string, Draft>>>({});
export const draftOf = (id: string): Draft => drafts.value[id] ?? emptyDraft;

export function changeDraft(id: string, change: Partial<Draft>): void {
  drafts.value = { ...drafts.value, [id]: { ...(drafts.peek()[id] ?? emptyDraft), ...change } };
}
