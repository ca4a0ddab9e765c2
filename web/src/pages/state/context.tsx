// One context: the state of each kind, its versions and its history.

import { useMemo } from "preact/hooks";
import type { StateKind } from "../../api/types.ts";
import { closest } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { contextsOf, draftOf, entryOf, neighboursOf, stateKinds } from "../../data/state.ts";
import { texts } from "../../i18n/index.ts";
import { CopyButton } from "../../ui/button.tsx";
import { NeedsScope } from "../../ui/needs-scope.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address, route } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { Tabs } from "../../ui/tabs.tsx";
import { NotFound, Suggestions } from "../unknown.tsx";
import { EntryView } from "./entry.tsx";
import { Past } from "./past.tsx";

export function ContextPage({ id }: { id: string }) {
  return (
    <section class="page">
      <p class="crumbs">
        <a href={address.state()}>{texts.value.nav.state}</a>
      </p>
      <NeedsScope scope="state:read">{() => <Context id={id} />}</NeedsScope>
    </section>
  );
}

function Context({ id }: { id: string }) {
  const t = texts.value.contexts;
  const resource = useMemo(() => neighboursOf(id), []);
  useResource(resource);
  const error = resource.error.value;
  // An id that cannot be one names nothing.
  if (error?.status === 422) return <Unknown id={id} why={error.message} />;
  return (
    <Loaded of={resource}>
      {(snapshot) => {
        const info = snapshot.value.items.find((context) => context.id === id);
        const asked = route.value.query.get("kind");
        const current = stateKinds.find((kind) => kind === asked) ?? stateKinds.find((kind) => info?.kinds[kind] || draftOf(id, kind)) ?? "business";
        const shown = stateKinds.filter((kind) => info?.kinds[kind] || kind === current);
        return (
          <div class="stack">
            <h1 class="tool-name">
              <Code text={id} limit={260} /> <CopyButton text={id} />
            </h1>
            {info?.threadId && (
              <div>
                {texts.value.calls.thread} <a href={address.thread(info.threadId)}><Code text={info.threadId} limit={128} /></a>
              </div>
            )}
            <Tabs label={t.kinds} current={current} tabs={shown.map((kind) => ({ name: kind, title: t.kind[kind], href: address.context(id, `kind=${kind}`) }))} />
            <Entry key={current} id={id} kind={current} isKnown={info !== undefined} />
          </div>
        );
      }}
    </Loaded>
  );
}

function Entry({ id, kind, isKnown }: { id: string; kind: StateKind; isKnown: boolean }) {
  const resource = useMemo(() => entryOf(id, kind), []);
  useResource(resource);
  return (
    <Loaded of={resource}>
      {({ value: { entry, versions, history } }) =>
        // What was typed is shown also after the state is gone.
        entry || isKnown || draftOf(id, kind) ? (
          <div class="columns">
            <EntryView id={id} kind={kind} entry={entry} reread={() => resource.read()} />
            {kind === "business" && entry && <Past entry={entry} versions={versions} history={history} reread={() => resource.read()} />}
          </div>
        ) : (
          <Unknown id={id} why="" />
        )
      }
    </Loaded>
  );
}

function Unknown({ id, why }: { id: string; why: string }) {
  const t = texts.value;
  const all = useMemo(() => contextsOf("", ""), []);
  useResource(all);
  const names = (all.data.value?.value.items ?? []).map((context) => context.id);
  return (
    <NotFound title={t.contexts.unknown} back={{ href: address.state(), name: t.nav.state, isRaw: false }}>
      <p>{why ? <Raw text={why} /> : t.contexts.unknownText}</p>
      <Suggestions links={closest(id, names).map((name) => ({ href: address.context(name), name, isRaw: true }))} />
    </NotFound>
  );
}
