// One thread: its conversation with a box for messages, and beside it what belongs to the thread.

import { useEffect, useMemo, useState } from "preact/hooks";
import { closest } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { agentName, agents, recentThreads, threadOf } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import { CopyButton } from "../../ui/button.tsx";
import { Icon } from "../../ui/icon.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { NotFound, Suggestions } from "../unknown.tsx";
import { Conversation } from "./conversation.tsx";
import { MessageBox } from "./message-box.tsx";
import { DeleteThread, ExportLink, Side } from "./side.tsx";

export function ThreadPage({ id }: { id: string }) {
  const t = texts.value.threads;
  const resource = useMemo(() => threadOf(id), [id]);
  useResource(resource);
  useResource(agents);
  const error = resource.error.value;
  const isGone = error?.code === "thread_not_found";
  // What cannot be an id at all is refused in another way.
  if (error && (isGone || error.status === 422) && !resource.data.value) return <UnknownThread id={id} message={error.message} />;
  const reread = () => resource.read();
  return (
    <section class="page">
      <p class="crumbs">
        <a href={address.threads()}>{texts.value.nav.threads}</a>
      </p>
      <div class="page-head">
        <h1 class="tool-name grow">
          <Code text={id} limit={128} /> <CopyButton text={id} />
        </h1>
        <div class="actions">
          {may("state:read") && <ExportLink id={id} />}
          {may("state:write") && <DeleteThread id={id} />}
        </div>
      </div>
      {isGone && (
        <p class="callout warn" role="status">
          <Icon name="info" /> <span>{t.gone}</span>
        </p>
      )}
      <Loaded of={resource}>
        {(snapshot) => (
          <div class="columns thread">
            <div class="chat">
              <Conversation id={id} view={snapshot.value} reread={reread} />
              {may("tools:call") && !isGone && <MessageBox id={id} view={snapshot.value} reread={reread} />}
            </div>
            <Side id={id} view={snapshot.value} agent={agentName(snapshot.value)} />
          </div>
        )}
      </Loaded>
    </section>
  );
}

function UnknownThread({ id, message }: { id: string; message: string }) {
  const t = texts.value.threads;
  const [isRead, setRead] = useState(false);
  useEffect(() => void recentThreads.read().then(() => setRead(true)), []);
  const near = isRead ? closest(id, recentThreads.data.value?.value.items.map((thread) => thread.id) ?? []) : [];
  return (
    <NotFound title={t.unknown} back={{ href: address.threads(), name: texts.value.nav.threads, isRaw: false }}>
      <p>
        <Raw text={message} />
      </p>
      <p>
        {t.unknownText} <Code text="store.retention.idle_threads" />
      </p>
      <Suggestions links={near.map((name) => ({ href: address.thread(name), name, isRaw: true }))} />
    </NotFound>
  );
}
