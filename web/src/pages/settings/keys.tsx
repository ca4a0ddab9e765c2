// API keys: listed, created, revoked.

import { useState } from "preact/hooks";
import type { Key } from "../../api/types.ts";
import { serverNow } from "../../base/clock.ts";
import { keys } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { session } from "../../data/session.ts";
import { revokeKey } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Fresh } from "../../ui/fresh.tsx";
import { type Column, LongList } from "../../ui/long-list.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { Ago, Time } from "../../ui/time.tsx";
import { CreatedKeyCard, NewKeyDialog, createdKey } from "./new-key.tsx";

export function Keys() {
  const t = texts.value.settings;
  useResource(keys);
  const [isMaking, make] = useState(false);
  const [asked, ask] = useState<Key | null>(null);
  return (
    <>
      <div class="actions">
        <button type="button" class="primary" onClick={() => make(true)}>
          {t.newKey}
        </button>
      </div>
      {createdKey.value && <CreatedKeyCard made={createdKey.value} />}
      <Loaded of={keys}>
        {(snapshot) => (
          <Fresh of={snapshot}>
            {snapshot.value.length > 0 ? (
              <LongList label={t.keys} class="key-list" items={snapshot.value} columns={columns(ask)} keyOf={({ id }) => id} selected={-1} />
            ) : (
              <Empty title={t.noKeys} text={t.noKeysText} command="toolhub keys create NAME --scope tools:read" />
            )}
          </Fresh>
        )}
      </Loaded>
      {isMaking && <NewKeyDialog close={() => make(false)} />}
      {asked && <Revoke asked={asked} close={() => ask(null)} />}
    </>
  );
}

function Revoke({ asked, close }: { asked: Key; close: () => void }) {
  const t = texts.value.settings;
  const act = async () => {
    await revokeKey(asked.id);
    say(t.revoked);
    close();
    void keys.read();
  };
  return (
    <Dialog title={t.revokeAsk} close={close}>
      <div class="form">
        <p>
          <Code text={asked.name} limit={128} />
        </p>
        <p class="quiet">{t.revokeText}</p>
        <div class="dialog-actions">
          <button type="button" autofocus onClick={close}>
            {texts.value.common.cancel}
          </button>
          <ActButton class="primary danger" act={act}>
            {t.revokeNow}
          </ActButton>
        </div>
      </div>
    </Dialog>
  );
}

function columns(ask: (key: Key) => void): Column<Key>[] {
  const t = texts.value.settings;
  const current = session.value;
  const own = current.state === "in" && !current.session.local ? current.session.caller : null;
  return [
    { name: "name", title: t.name, cell: (key) => <><Raw text={key.name} limit={128} /> {key.name === own && <span class="tag">{t.yours}</span>}</> },
    { name: "scopes", title: t.scopes, cell: ({ scopes }) => <span title={scopes.join(" ")} data-raw>{scopes.join(" ")}</span> },
    { name: "tenant", title: t.tenant, cell: ({ tenant }) => <Raw text={tenant} limit={64} /> },
    {
      name: "expires",
      title: t.expires,
      cell: ({ expiresAt }) => (!expiresAt ? <span class="quiet">{t.never}</span> : Date.parse(expiresAt) < serverNow() ? <span class="bad">{t.expired}</span> : <Time at={expiresAt} />),
    },
    { name: "made", title: t.made, cell: ({ createdAt }) => (createdAt ? <Time at={createdAt} /> : <span class="quiet">{t.inConfig}</span>) },
    { name: "used", title: t.used, cell: ({ lastUsedAt }) => (lastUsedAt ? <Ago at={lastUsedAt} /> : <span class="quiet">{t.unused}</span>) },
    { name: "revoke", title: <span class="hidden">{t.revokeNow}</span>, cell: (key) => key.origin === "store" && <button type="button" class="danger" onClick={() => ask(key)}>{t.revoke}</button> },
  ];
}
