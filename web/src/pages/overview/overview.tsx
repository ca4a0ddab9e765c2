// The first page: what runs now, and what needs a person.

import { statusCounts, statuses, tools } from "../../data/tools.ts";
import { useResource } from "../../data/resource.ts";
import { number } from "../../base/format.ts";
import { texts } from "../../i18n/index.ts";
import { Bar } from "../../ui/bar.tsx";
import { address } from "../../ui/router.ts";
import { Empty, Loaded } from "../../ui/state.tsx";
import { ToolBadge } from "../../ui/status.tsx";
import { Attention } from "./attention.tsx";
import { Charts } from "./charts.tsx";
import { Tiles } from "./tiles.tsx";

export function Overview() {
  return (
    <section class="page">
      <h1 class="hidden">{texts.value.nav.overview}</h1>
      <Tiles />
      <div class="columns">
        <Attention />
        <ToolStatuses />
      </div>
      <Charts tool="" />
    </section>
  );
}

function ToolStatuses() {
  const t = texts.value.overview;
  useResource(tools);
  const counts = statusCounts.value;
  return (
    <section class="card" aria-labelledby="by-status">
      <h2 id="by-status">{t.toolsByStatus}</h2>
      <Loaded of={tools}>
        {(snapshot) =>
          snapshot.value.length === 0 ? (
            <Empty title={texts.value.tools.none} text={texts.value.tools.noneText} command="toolhub init && toolhub serve --watch" />
          ) : (
            <>
              <Bar parts={statuses.map((name) => ({ name, count: counts[name] }))} />
              <ul class="status-list">
                {[...statuses].reverse().map((name) => (
                  <li key={name}>
                    <a href={address.tools(`status=${name}`)}>
                      <ToolBadge status={name} />
                      <span class="num">{number(counts[name])}</span>
                    </a>
                  </li>
                ))}
              </ul>
            </>
          )
        }
      </Loaded>
    </section>
  );
}
