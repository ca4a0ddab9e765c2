// What administrators read and change: config, keys, audit log, backups.

import { signal } from "@preact/signals";
import { ApiError, get, getAll, post, remove, segment, withQuery } from "../api/client.ts";
import type { AuditEntry, Backup, ConfigErrorItem, ConfigValue, CreatedKey, ReloadReport, Scope } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { isSpan, spans } from "./calls.ts";
import { Resource } from "./resource.ts";

export const config = new Resource<ConfigValue[]>(async () => (await get<{ items: ConfigValue[] }>("/api/v1/config?origins=true")).items, {
  changes: ({ event }) => event === "config.reloaded",
});

/** What the last reload by this page did. */
export type Reloaded = { at: number } & ({ report: ReloadReport } | { error: ApiError; problems: ConfigErrorItem[] });
export const lastReload = signal<Reloaded | null>(null);

export async function reload(): Promise<void> {
  try {
    const report = await post<ReloadReport>("/api/v1/reload");
    lastReload.value = { at: serverNow(), report };
    void config.read();
  } catch (failure) {
    const error = failure instanceof ApiError ? failure : new ApiError(0, String(failure));
    const problems = error.code === "config_invalid" ? ((error.problem?.errors ?? []) as unknown as ConfigErrorItem[]) : [];
    lastReload.value = { at: serverNow(), error, problems };
  }
}

export const allScopes: readonly Scope[] = ["tools:read", "tools:call", "tools:write", "approvals:write", "state:read", "state:write", "admin"];

/** What people usually are. */
export const presets = {
  viewer: ["tools:read", "state:read"],
  caller: ["tools:read", "state:read", "tools:call"],
  approver: ["tools:read", "approvals:write"],
  operator: allScopes.filter((scope) => scope !== "admin"),
  admin: allScopes,
} as const satisfies Record<string, readonly Scope[]>;

export interface NewKey {
  name: string;
  scopes: readonly Scope[];
  tenant?: string;
  expiresIn?: string;
}

export const createKey = (key: NewKey): Promise<CreatedKey> => post("/api/v1/keys", key);
export const revokeKey = (id: string): Promise<void> => remove(`/api/v1/keys/${segment(id)}`);

/** The newest entries of the audit log. */
export const auditOf = (since: string, limit: number): Resource<AuditEntry[]> =>
  new Resource(
    async () => {
      const from = isSpan(since) ? new Date(serverNow() - spans[since]).toISOString() : "";
      return (await getAll<AuditEntry>(withQuery("/api/v1/audit", { since: from }), limit)).slice(0, limit);
    },
    { everyMs: 5_000 },
  );

export const backups = signal<readonly (Backup & { at: number })[]>([]);

export async function makeBackup(store: "hub" | "state"): Promise<void> {
  const backup = await post<Backup>(`/api/v1/backups?store=${store}`);
  backups.value = [{ ...backup, at: serverNow() }, ...backups.peek()];
}
