// One context: the state of each kind, its versions and its history.

import { useMemo } from "preact/hooks";
import type { ContextInfo, StateKind } from "../../api/types.ts";
import { useResource } from "../../data/resource.ts";
import { contextOf, contextsOf, draftOf, entryOf, stateKinds } from "../../data/state.ts";
import { closest } from "../../base/match.ts";
import { texts } from "../../i18n/index.ts";
import { CopyButton } from "../../ui/button.tsx";
import { Fresh } from "../../ui/fresh.tsx";
import { NeedsScope } from "../../ui/needs-scope.tsx";
import { Code } from "../../ui/raw.tsx";
import { address, route } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { Tabs } from "../../ui/tabs.tsx";
import { NotFound, Suggestions } from "../unknown.tsx";
import { EntryView } from "./entry.tsx";
import { History } from "./history.tsx";
import { Versions } from "./versions.tsx";

export function ContextPage({ id }: { id: string }) {
  return (
    <section class="page">
      <NeedsScope scope="state:read">{() => <Context id={id} />}</NeedsScope>
    </section>
  );
}

function Context({ id }: { id: string }) {
  const t = texts.value;
  const resource = useMemo(() => contextOf(id), []);
  useResource(resource);
  const asked = stateKinds.find((kind) => kind === route.value.query.get("kind"));
  // What a person was typing is shown also after the context is gone.
  const draftKind = stateKinds.find((kind) => draftOf(id, kind));
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const info = snapshot.value;
        const kind = asked ?? draftKind ?? stateKinds.find((name) => info?.kinds[name]) ?? "business";
        if (!info && !draftKind) return <Unknown id={id} />;
        return (
          <>
            <p class="crumbs">
              <a href={address.state()}>{t.contexts.title}</a>
            </p>
            <div>
              <h1 class="tool-name">
                <Code text={id} limit={260} /> <CopyButton text={id} />
              </h1>
              {info?.threadId && (
                <p class="quiet">
                  {t.contexts.thread} <a href={address.thread(info.threadId)}><Code text={info.threadId} limit={128} /></a>
                </p>
              )}
            </div>
            <Kinds id={id} info={info} current={kind} />
            <Fresh of={snapshot}><Entry key={kind} id={id} kind={kind} /></Fresh>
          </>
        );
      }}
    </Loaded>
  );
}

function Kinds({ id, info, current }: { id: string; info: ContextInfo | null; current: StateKind }) {
  const t = texts.value.contexts;
  const shown = stateKinds.filter((kind) => info?.kinds[kind] || kind === current);
  return <Tabs label={t.kinds} current={current} tabs={shown.map((kind) => ({ name: kind, title: t.kind[kind], href: address.context(id, `kind=${kind}`) }))} />;
}

function Entry({ id, kind }: { id: string; kind: StateKind }) {
  const resource = useMemo(() => entryOf(id, kind), []);
  useResource(resource);
  const reread = () => resource.read();
  return (
    <Loaded of={resource}>
      {({ value }) => (
        <div class="columns">
          <EntryView id={id} kind={kind} entry={value} reread={reread} />
          {kind === "business" && value && (
            <div class="stack">
              <Versions entry={value} reread={reread} />
              <History entry={value} />
            </div>
          )}
        </div>
      )}
    </Loaded>
  );
}

function Unknown({ id }: { id: string }) {
  const t = texts.value.contexts;
  const all = useMemo(() => contextsOf("", ""), []);
  useResource(all);
  const names = (all.data.value?.value ?? []).map((context) => context.id);
  return (
    <NotFound title={t.unknown} back={{ href: address.state(), name: t.title, isRaw: false }}>
      <p>
        {t.unknownText} <Code text={id} limit={260} />
      </p>
      <Suggestions links={closest(id, names).map((name) => ({ href: address.context(name), name, isRaw: true }))} />
    </NotFound>
  );
}
