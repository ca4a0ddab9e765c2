// What administrators read and change: config, keys, audit log, backups.

import { signal } from "@preact/signals";
import { type ApiError, get, post, remove, segment, toApiError, withQuery } from "../api/client.ts";
import type { AuditEntry, Backup, ConfigErrorItem, ConfigValue, CreatedKey, Page, ReloadReport as Report, Scope } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { info } from "./facts.ts";
import { PagedResource } from "./paged.ts";
import { Resource } from "./resource.ts";

export const config = new Resource<Page<ConfigValue & { id: string }>>(
  async () => ({ items: (await get<Page<ConfigValue>>("/api/v1/config?origins=true", { exact: ["value"] })).items.map((item) => ({ ...item, id: item.key })) }),
  { changes: ({ event }) => event === "config.reloaded" },
);

/** What the last reload by this page did. */
interface Reloaded {
  at: number;
  report?: Report;
  error?: ApiError;
  problems: ConfigErrorItem[];
}

export const lastReload = signal<Reloaded | null>(null);

export async function reload(): Promise<void> {
  try {
    const report = await post<Report>("/api/v1/reload");
    lastReload.value = { report, at: serverNow(), problems: [] };
    await Promise.all([config.read(), info.read()]);
  } catch (failure) {
    const error = toApiError(failure);
    const problems = error.code === "config_invalid" ? error.problem?.errors : null;
    lastReload.value = { error, at: serverNow(), problems: (problems ?? []) as unknown as ConfigErrorItem[] };
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
} satisfies Record<string, readonly Scope[]>;

export type Preset = keyof typeof presets;

/** Makes a key; empty fields are left out. */
export const createKey = (fields: Record<"name" | "expiresIn" | "tenant", string>, scopes: readonly Scope[]): Promise<CreatedKey> =>
  post("/api/v1/keys", { scopes, ...Object.fromEntries(Object.entries(fields).filter(([, value]) => value)) });

export const revokeKey = (id: string): Promise<void> => remove(`/api/v1/keys/${segment(id)}`);

/** The newest entries of the audit log. */
export const auditLog = (): PagedResource<AuditEntry> => new PagedResource((limit, cursor) => get(withQuery("/api/v1/audit", { limit, cursor })), { everyMs: 5_000 });

/** What this page has made: the server lists none. */
export const backups = signal<readonly Backup[]>([]);

export async function makeBackup(store: "hub" | "state"): Promise<void> {
  const backup = await post<Backup>(`/api/v1/backups?store=${store}`, undefined, {}, { timeoutMs: 600_000 });
  backups.value = [backup, ...backups.peek()];
}
