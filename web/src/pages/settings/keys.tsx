// API keys: listed, created, revoked.

import { useState } from "preact/hooks";
import type { CreatedKey, Key } from "../../api/types.ts";
import { serverNow } from "../../base/clock.ts";
import { keys } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { revokeKey } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { Command } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import type { Column } from "../../ui/long-list.tsx";
import { Code } from "../../ui/raw.tsx";
import { RowList } from "../../ui/row-list.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Ago, Time } from "../../ui/time.tsx";
import { Names } from "./names.tsx";
import { NewKey } from "./new-key.tsx";

export function Keys() {
  const t = texts.value.settings;
  useResource(keys);
  const [isMaking, make] = useState(false);
  const [made, setMade] = useState<CreatedKey | null>(null);
  const [asked, ask] = useState<Key | null>(null);
  return (
    <>
      <div class="actions">
        <button type="button" class="primary" onClick={() => make(true)}>
          {t.newKey}
        </button>
      </div>
      {made && (
        <div class="callout good" role="status">
          <div>
            <p>
              <Code text={made.name} /> {t.once}
            </p>
            <Command text={made.key} />
          </div>
        </div>
      )}
      <Loaded of={keys}>
        {(snapshot) =>
          snapshot.value.length === 0 ? (
            <Empty title={t.noKeys} command="toolhub keys create NAME --scope tools:read" />
          ) : (
            <RowList label={t.view.keys} class="key-list" items={snapshot.value} columns={columns(ask)} dialogTitle={t.apiKey} />
          )
        }
      </Loaded>
      {isMaking && (
        <NewKey
          close={() => make(false)}
          done={(key) => {
            setMade(key);
            void keys.read();
          }}
        />
      )}
      {asked && (
        <Confirm title={t.revokeAsk} word={t.revoke} close={() => ask(null)} act={() => revokeKey(asked.id).then(() => keys.read())}>
          <p>
            <Code text={asked.name} limit={128} /> {t.revokeText}
          </p>
        </Confirm>
      )}
    </>
  );
}

function columns(ask: (key: Key) => void): Column<Key>[] {
  const t = texts.value.settings;
  const revoke = (key: Key) =>
    key.origin === "config" ? (
      <span class="quiet">{t.inConfig}</span>
    ) : (
      <button type="button" class="danger" onClick={() => ask(key)}>
        {t.revoke}
      </button>
    );
  return [
    { name: "name", title: t.name, cell: ({ name }) => <Code text={name} limit={128} /> },
    { name: "scopes", title: t.scopes, cell: ({ scopes }) => <Names of={scopes} /> },
    { name: "tenant", title: t.tenant, cell: ({ tenant }) => <Code text={tenant} limit={64} /> },
    { name: "expires", title: t.expires, cell: ({ expiresAt }) => expiresAt && <Expiry at={expiresAt} /> },
    { name: "used", title: t.used, cell: ({ lastUsedAt }) => lastUsedAt && <Ago at={lastUsedAt} /> },
    { name: "actions", title: <span class="hidden">{t.revoke}</span>, cell: revoke, isAction: true },
  ];
}

function Expiry({ at }: { at: string }) {
  const isOver = Date.parse(at) < serverNow();
  return (
    <span class={isOver ? "bad" : ""}>
      {isOver && texts.value.settings.expired} <Time at={at} />
    </span>
  );
}
