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
import { LongList } from "../../ui/long-list.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { searched, SearchField } from "../../ui/search-field.tsx";
import { Empty, Loaded } from "../../ui/state.tsx";
import { ReloadReport } from "./reload.tsx";

const oneLine = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

export function Config() {
  const t = texts.value.settings;
  useResource(config);
  const [opened, open] = useState<ConfigValue | null>(null);
  const [isAll, setAll] = useState(true);
  const words = searched();
  return (
    <>
      <div class="filters" role="search">
        <SearchField label={t.search} />
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> {t.defaults}
        </label>
        <ActButton class="primary" act={reload}>
          {t.reload}
        </ActButton>
      </div>
      <ReloadReport />
      <Loaded of={config}>
        {(snapshot) => {
          const found = snapshot.value.filter((item) => (isAll || item.source !== "default") && rank(words, item.key, `${oneLine(item.value)} ${item.origin}`) !== null);
          if (found.length === 0) return <Empty title={t.noMatch} />;
          return (
            <Fresh of={snapshot}>
              <LongList
                label={t.view.config}
                class="config-list"
                items={found}
                keyOf={({ key }) => key}
                selected={-1}
                columns={[
                  { name: "key", title: t.key, cell: (item) => <button type="button" class="link" onClick={() => open(item)}><Code text={item.key} /></button> },
                  { name: "value", title: t.value, cell: (item) => <Raw text={oneLine(item.value)} limit={200} /> },
                  { name: "origin", title: t.origin, cell: ({ source, origin }) => (source === "default" ? <span class="quiet">{t.default}</span> : <Code text={origin} />) },
                ]}
              />
            </Fresh>
          );
        }}
      </Loaded>
      {opened && (
        <Dialog title={<Code text={opened.key} />} close={() => open(null)}>
          <RawBlock text={valueText(opened.value)} label={t.value} />
          <Code text={opened.origin} />
        </Dialog>
      )}
    </>
  );
}
