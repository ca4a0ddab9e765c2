// The threads that were active last, the runs of agents, and a new conversation.

import { runFilters } from "../../data/runs.ts";
import { useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { agents, createThread } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { address, go, route, setQuery } from "../../ui/router.ts";
import { Tabs } from "../../ui/tabs.tsx";
import { RunList } from "../runs/list.tsx";
import { ThreadList } from "./list.tsx";

export function ThreadsPage() {
  const t = texts.value;
  const { query } = route.value;
  const isRuns = query.get("view") === "runs";
  const q = query.get("q")?.trim() ?? "";
  const filter = runFilters.find((name) => name === query.get("status")) ?? "";
  return (
    <section class="page fill">
      <div class="page-head">
        <h1>{t.nav.threads}</h1>
        {may("tools:call") && <NewConversation />}
      </div>
      <Tabs
        label={t.threads.views}
        current={isRuns ? "runs" : "threads"}
        tabs={[
          { name: "threads", title: t.threads.title, href: address.threads() },
          { name: "runs", title: t.runs.title, href: address.threads("view=runs") },
        ]}
      />
      <div class="filters" role="search">
        {isRuns ? (
          <select aria-label={t.calls.status} value={filter} onChange={(event) => setQuery({ status: event.currentTarget.value })}>
            {runFilters.map((name) => (
              <option key={name} value={name}>
                {name === "" ? t.calls.anyStatus : name === "open" ? t.runs.open : t.runs.status[name]}
              </option>
            ))}
          </select>
        ) : (
          <input type="search" aria-label={t.threads.search} placeholder={t.threads.search} value={q} spellcheck={false} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        )}
      </div>
      {isRuns ? <RunList key={filter} filter={filter} threadId={query.get("thread") ?? ""} /> : <ThreadList key={q} q={q} />}
    </section>
  );
}

/** Makes a thread and goes to it; there the agent is chosen, and the first message starts a run. */
function NewConversation() {
  useResource(agents);
  if (!agents.data.value?.value.length) return null;
  return (
    <ActButton class="primary" act={async () => go(address.thread((await createThread()).id))}>
      {texts.value.threads.begin}
    </ActButton>
  );
}
