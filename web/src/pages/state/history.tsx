// What happened to a context, the newest first.

import { useEffect, useState } from "preact/hooks";
import type { HistoryEntry, StateEntry } from "../../api/types.ts";
import { historyPage } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Failure } from "../../ui/notice.tsx";
import { Raw } from "../../ui/raw.tsx";
import { Time } from "../../ui/time.tsx";
import { useRead } from "./read.ts";

interface Older {
  items: HistoryEntry[];
  next: string | null;
}

export function History({ entry }: { entry: StateEntry }) {
  const t = texts.value.contexts;
  const { value: newest, error } = useRead(() => historyPage(entry.contextId, null), entry.etag ?? "");
  const [older, setOlder] = useState<Older | null>(null);
  // A new first page begins the list again.
  useEffect(() => setOlder(null), [newest]);
  const items = [...(newest?.items ?? []), ...(older?.items ?? [])];
  const next = older ? older.next : (newest?.nextCursor ?? null);
  const more = async () => {
    const page = await historyPage(entry.contextId, next);
    setOlder({ items: [...(older?.items ?? []), ...page.items], next: page.nextCursor ?? null });
  };
  return (
    <section class="card">
      <h2>{t.history}</h2>
      {error && <p class="error-text"><Failure error={error} /></p>}
      {newest && items.length === 0 && <p class="quiet">{t.noHistory}</p>}
      <ol class="history">
        {items.map((one, index) => (
          <li key={index}>
            <Time at={one.timestamp} /> {t.event[one.type]} {one.type === "update" && <span class="num">{one.version}</span>} <Raw text={detail(one)} limit={300} />
          </li>
        ))}
      </ol>
      {next && <ActButton class="more-button" act={more}>{t.older}</ActButton>}
    </section>
  );
}

function detail(entry: HistoryEntry): string {
  switch (entry.type) {
    case "execution_start":
      return JSON.stringify(entry.parameters);
    case "execution_success":
      return entry.resultType;
    case "execution_error":
      return `${entry.errorType}: ${entry.error}`;
    case "update":
      return JSON.stringify(entry.updates);
    case "note":
      return JSON.stringify(entry.what);
  }
}
