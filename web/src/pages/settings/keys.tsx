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
import { Code } from "../../ui/raw.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Table } from "../../ui/table.tsx";
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
            <Table label={t.view.keys} heads={[t.name, t.scopes, t.tenant, t.expires, t.used, <span class="hidden">{t.revoke}</span>]}>
              {snapshot.value.map((key) => (
                <tr key={key.id}>
                  <td>
                    <Code text={key.name} limit={128} />
                  </td>
                  <td>
                    <Names of={key.scopes} />
                  </td>
                  <td>
                    <Code text={key.tenant} limit={64} />
                  </td>
                  <td>
                    {key.expiresAt && (
                      <span class={Date.parse(key.expiresAt) < serverNow() ? "bad" : ""}>
                        {Date.parse(key.expiresAt) < serverNow() && t.expired} <Time at={key.expiresAt} />
                      </span>
                    )}
                  </td>
                  <td>{key.lastUsedAt && <Ago at={key.lastUsedAt} />}</td>
                  <td class="right">
                    {key.origin === "config" ? (
                      <span class="quiet">{t.inConfig}</span>
                    ) : (
                      <button type="button" class="danger" onClick={() => ask(key)}>
                        {t.revoke}
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </Table>
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
