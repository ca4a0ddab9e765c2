// Every value of the config and where it comes from.

import { useState } from "preact/hooks";
import { valueText } from "../../base/json.ts";
import { config, reload } from "../../data/settings.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { PagedList } from "../../ui/paged-list.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address, route, setQuery } from "../../ui/router.ts";
import { isSearched, SearchField } from "../../ui/search-field.tsx";
import { Empty } from "../../ui/state.tsx";
import { ReloadReport } from "./reload.tsx";

const oneLine = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

export function Config() {
  const t = texts.value.settings;
  const [isAll, setAll] = useState(true);
  const { query } = route.value;
  const opened = config.data.value?.value.items.find(({ key }) => key === query.get("key"));
  // With the search, which stays.
  const href = (item: { key: string }) => address.settings(String(new URLSearchParams({ view: "config", q: query.get("q") ?? "", key: item.key })));
  return (
    <>
      <div class="filters" role="search">
        <SearchField />
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> {t.defaults}
        </label>
        <ActButton class="primary" act={reload}>
          {t.reload}
        </ActButton>
      </div>
      <ReloadReport />
      <PagedList
        label={t.view.config}
        class="config-list"
        newest={config}
        fits={({ key, value, origin, source }) => (isAll || source !== "default") && isSearched(`${key} ${oneLine(value)} ${origin}`)}
        empty={<Empty title={t.noMatch} />}
        href={href}
        columns={[
          { name: "key", title: t.key, cell: (item) => <a href={href(item)}><Code text={item.key} /></a> },
          { name: "origin", title: t.origin, cell: ({ source, origin }) => (source === "default" ? <span class="quiet">{t.default}</span> : <Code text={origin} />) },
          { name: "value", title: t.value, cell: ({ value }) => <Raw text={oneLine(value)} limit={200} /> },
        ]}
      />
      {opened && (
        <Dialog title={<Code text={opened.key} />} close={() => setQuery({ key: null })}>
          <RawBlock text={valueText(opened.value)} label={t.value} />
          <Code text={opened.origin} />
        </Dialog>
      )}
    </>
  );
}
