// Who uses the page and what they may do.

import { signal } from "@preact/signals";
import { type ApiError, get, post, toApiError, whenUnauthenticated } from "../api/client.ts";
import type { Scope, Session } from "../api/types.ts";
import { pageVersion } from "../base/page.ts";
import { connection, onEpoch, startStream } from "../live/client.ts";

export type SessionState =
  | { state: "loading" }
  | { state: "unreachable"; error: ApiError }
  | { state: "login"; session: Session | null; hasEnded: boolean }
  | { state: "in"; session: Session };

export const session = signal<SessionState>({ state: "loading" });

/** The version of a server whose page is another one than this. */
export const newVersion = signal<string | null>(null);

/** Whether the caller has the scope. Only to hide what the server would refuse. */
export function may(scope: Scope): boolean {
  const current = session.value;
  if (current.state !== "in") return false;
  return current.session.local || current.session.scopes.includes(scope);
}

export function has(feature: string): boolean {
  const current = session.value;
  return current.state === "in" && current.session.features.includes(feature);
}

/** Who used the page last. What it has read and what was typed is theirs. */
let user: Session | null = null;

const sameScopes = (one: Session, other: Session): boolean => one.scopes.length === other.scopes.length && one.scopes.every((scope) => other.scopes.includes(scope));
const isSameUser = (one: Session, other: Session): boolean => one.local === other.local && one.tenant === other.tenant && one.caller === other.caller;

/** Whether the page must be loaded again: another person uses it, or the login after another has other scopes. */
function mustReload(before: SessionState, found: Session): boolean {
  return user !== null && (!isSameUser(user, found) || (before.state === "login" && !sameScopes(user, found)));
}

async function load(): Promise<void> {
  const before = session.peek();
  // Several requests may be refused one after the other.
  const hasEnded = before.state === "in" || (before.state === "login" && before.hasEnded);
  try {
    const found = await get<Session>("/ui/session");
    if (!found.loginNeeded) {
      if (mustReload(before, found)) {
        // Nothing of what is known may be shown until the page is loaded again.
        session.value = { state: "loading" };
        return location.reload();
      }
      user = found;
    }
    newVersion.value = pageVersion === "dev" || found.uiVersion === pageVersion ? null : found.version;
    if (found.loginNeeded) session.value = { state: "login", session: found, hasEnded };
    else {
      session.value = { state: "in", session: found };
      // A key that may not read events is refused again and again; only a login changes that.
      if (before.state !== "in") startStream();
    }
  } catch (error) {
    const failure = toApiError(error);
    if (failure.status === 401) session.value = { state: "login", session: null, hasEnded };
    else if (before.state !== "in") session.value = { state: "unreachable", error: failure };
  }
}

let loading: Promise<void> | null = null;

/** Asks the server who uses the page; several askers share one request. */
export const loadSession = (): Promise<void> => (loading ??= load().finally(() => (loading = null)));

export async function login(key: string): Promise<void> {
  await post("/ui/login", { key });
  await loadSession();
}

export async function logout(): Promise<void> {
  await post("/ui/logout");
  location.reload();
}

export function watchSession(): void {
  whenUnauthenticated(() => void loadSession());
  // The server behind a new connection may be another one, and the key may be gone.
  let isFirst = true;
  onEpoch(() => (isFirst ? (isFirst = false) : void loadSession()));
  connection.subscribe((current) => current.state === "refused" && void loadSession());
}
