// The Calls page: the records of calls, or the calls that were refused before they had one.

import { readCallFilter } from "../../data/calls.ts";
import { texts } from "../../i18n/index.ts";
import { address, route } from "../../ui/router.ts";
import { Tabs } from "../../ui/tabs.tsx";
import { Filters } from "./filters.tsx";
import { CallList } from "./list.tsx";
import { Refusals } from "./refusals.tsx";

export function CallsPage() {
  const t = texts.value;
  const { query } = route.value;
  const filter = readCallFilter(query);
  const isRefusals = query.get("view") === "refusals";
  const key = JSON.stringify(filter);
  return (
    <section class={isRefusals ? "page" : "page fill"}>
      <h1>{t.nav.calls}</h1>
      <Tabs
        label={t.calls.views}
        current={isRefusals ? "refusals" : "calls"}
        tabs={[
          { name: "calls", title: t.calls.view.calls, href: address.calls() },
          { name: "refusals", title: t.calls.view.refusals, href: address.calls("view=refusals") },
        ]}
      />
      <Filters filter={filter} isRefusals={isRefusals} />
      {isRefusals ? <Refusals key={key} filter={filter} /> : <CallList key={key} filter={filter} />}
    </section>
  );
}
