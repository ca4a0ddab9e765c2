// The audit log: changes and refused requests, the newest first.

import { useMemo, useState } from "preact/hooks";
import { rank } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { auditOf } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { Fresh } from "../../ui/fresh.tsx";
import { LongList } from "../../ui/long-list.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { searched, SearchField } from "../../ui/search-field.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";

const pageSize = 500;

export function Audit() {
  const [limit, setLimit] = useState(pageSize);
  return (
    <>
      <div class="filters" role="search">
        <SearchField label={texts.value.settings.search} />
      </div>
      <Entries key={limit} limit={limit} more={() => setLimit(limit + pageSize)} />
    </>
  );
}

function Entries({ limit, more }: { limit: number; more: () => void }) {
  const { settings: t, calls } = texts.value;
  const resource = useMemo(() => auditOf(limit), []);
  useResource(resource);
  const words = searched();
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const found = snapshot.value.filter((entry) => rank(words, Object.values(entry).join(" ")) !== null);
        return (
          <Fresh of={snapshot}>
            {found.length === 0 && <Empty title={t.noMatch} />}
            {found.length > 0 && (
              <LongList
                label={t.view.audit}
                class="audit-list"
                items={found}
                keyOf={({ id }) => id}
                selected={-1}
                columns={[
                  { name: "when", title: calls.started, cell: ({ at }) => <Time at={at} /> },
                  { name: "act", title: t.act, cell: ({ act, notKept }) => <><Code text={act} limit={64} />{notKept ? ` +${notKept}` : ""}</> },
                  { name: "who", title: calls.caller, cell: ({ who }) => <Raw text={who ?? "–"} limit={128} /> },
                  { name: "path", title: t.request, cell: ({ method, path }) => <Raw text={`${method} ${path}`} limit={300} /> },
                  { name: "status", title: calls.status, cell: ({ status }) => <span class={status < 400 ? "num" : "num bad"}>{status}</span> },
                  { name: "from", title: t.from, cell: ({ from }) => <Raw text={from ?? ""} limit={64} /> },
                ]}
              />
            )}
            {snapshot.value.length >= limit && <button type="button" class="list-end" onClick={more}>{t.older}</button>}
          </Fresh>
        );
      }}
    </Loaded>
  );
}
