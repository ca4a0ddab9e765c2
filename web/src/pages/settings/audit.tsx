// The audit log: changes and refused requests, the newest first.

import { useMemo } from "preact/hooks";
import type { AuditEntry } from "../../api/types.ts";
import { auditLog } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { PagedList } from "../../ui/paged-list.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { isSearched, SearchField } from "../../ui/search-field.tsx";
import { Empty } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

const fits = (entry: AuditEntry): boolean => isSearched(Object.values(entry).join(" "));

export function Audit() {
  const { settings: t, calls } = texts.value;
  return (
    <>
      <div class="filters" role="search">
        <SearchField />
      </div>
      <PagedList
        label={t.view.audit}
        class="audit-list"
        newest={useMemo(auditLog, [])}
        olderText={t.older}
        fits={fits}
        empty={<Empty title={t.noEntry} />}
        columns={[
          { name: "act", title: t.act, cell: ({ act, notKept }) => <><Code text={act} limit={64} />{notKept ? ` +${notKept}` : ""}</> },
          { name: "when", title: t.when, cell: ({ at }) => <Time at={at} /> },
          { name: "path", title: t.request, cell: ({ method, path }) => <Raw text={`${method} ${path}`} limit={300} /> },
          { name: "status", title: calls.status, cell: ({ status }) => <span class={status < 400 ? "num" : "num bad"}>{status}</span> },
          { name: "who", title: calls.caller, cell: ({ who }) => <Raw text={who ?? "–"} limit={128} /> },
          { name: "from", title: t.from, cell: ({ from }) => <Raw text={from ?? ""} limit={64} /> },
        ]}
      />
    </>
  );
}
