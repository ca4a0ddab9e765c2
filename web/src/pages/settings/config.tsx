// Every value of the config and where it comes from.

import { useState } from "preact/hooks";
import type { ConfigValue } from "../../api/types.ts";
import { valueText } from "../../base/json.ts";
import { rank } from "../../base/match.ts";
import { useResource } from "../../data/resource.ts";
import { config, reload } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Fresh } from "../../ui/fresh.tsx";
import { type Column, LongList } from "../../ui/long-list.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { route, setQuery } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { ReloadReport, WaitingRestart } from "./reload.tsx";

const oneLine = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

export function Config() {
  const t = texts.value.settings;
  useResource(config);
  const [opened, open] = useState<ConfigValue | null>(null);
  const { query } = route.value;
  const [words, isOnlySet] = [query.get("q") ?? "", query.get("set") === "1"];
  return (
    <>
      <div class="filters" role="search">
        <input type="search" aria-label={t.search} placeholder={t.search} value={words} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <label class="check">
          <input type="checkbox" checked={isOnlySet} onChange={(event) => setQuery({ set: event.currentTarget.checked ? "1" : null })} /> {t.onlySet}
        </label>
        <ActButton class="primary" act={reload} title={t.reloadText}>
          {t.reload}
        </ActButton>
      </div>
      <WaitingRestart />
      <ReloadReport />
      <Loaded of={config}>
        {(snapshot) => {
          const found = snapshot.value.filter((item) => (!isOnlySet || item.source !== "default") && rank(words, item.key, `${oneLine(item.value)} ${item.origin}`) !== null);
          return (
            <Fresh of={snapshot}>
              {found.length > 0 ? <LongList label={t.view.config} class="config-list" items={found} columns={columns(open)} keyOf={({ key }) => key} selected={-1} /> : <Empty title={t.noMatch} />}
            </Fresh>
          );
        }}
      </Loaded>
      {opened && (
        <Dialog title={<Code text={opened.key} />} close={() => open(null)}>
          <RawBlock text={valueText(opened.value)} label={t.value} />
          <p class="quiet">
            {t.origin} <Code text={opened.origin} />
          </p>
        </Dialog>
      )}
    </>
  );
}

function columns(open: (item: ConfigValue) => void): Column<ConfigValue>[] {
  const t = texts.value.settings;
  return [
    { name: "key", title: t.key, cell: (item) => <button type="button" class="link" onClick={() => open(item)}><Code text={item.key} /></button> },
    { name: "value", title: t.value, cell: (item) => <Raw text={oneLine(item.value)} limit={200} /> },
    { name: "origin", title: t.origin, cell: (item) => (item.source === "default" ? <span class="quiet">{t.default}</span> : <Code text={item.origin} />) },
  ];
}
