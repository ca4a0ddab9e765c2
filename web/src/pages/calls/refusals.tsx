// Calls that were refused before they reached the tool. The server remembers the last ones of this process.

import { useMemo } from "preact/hooks";
import { type CallFilter, type RefusalRow, refusalsOf } from "../../data/calls.ts";
import { texts } from "../../i18n/index.ts";
import type { Column } from "../../ui/long-list.tsx";
import { PagedList } from "../../ui/paged-list.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Empty } from "../../ui/state.tsx";
import { Time } from "../../ui/time.tsx";
import { ProblemLink } from "./failure.tsx";

type RefusalFilter = Pick<CallFilter, "tool" | "thread" | "caller" | "code">;

/** The refused calls that the filter selects. On the page of a tool its name is not repeated in each row. */
export function Refusals({ filter, isOfTool = false }: { filter: RefusalFilter; isOfTool?: boolean }) {
  const t = texts.value.calls;
  const newest = useMemo(() => refusalsOf(filter), [JSON.stringify(filter)]);
  return (
    <section class="card" aria-labelledby="refusals">
      <h2 id="refusals">{t.refusals}</h2>
      <p class="quiet">{t.refusalsText}</p>
      <PagedList
        label={t.refusals}
        class={isOfTool ? "refusal-list of-tool" : "refusal-list"}
        newest={newest}
        olderText={t.olderRefusals}
        empty={<Empty title={t.noRefusals} />}
        columns={columns(isOfTool)}
        dialogTitle={t.refusal}
      />
    </section>
  );
}

function columns(isOfTool: boolean): Column<RefusalRow>[] {
  const t = texts.value.calls;
  const all: Column<RefusalRow>[] = [
    { name: "when", title: t.when, cell: ({ at }) => <Time at={at} /> },
    { name: "tool", title: t.tool, cell: ({ tool }) => <a href={address.tool(tool)}><Raw text={tool} limit={80} /></a> },
    { name: "error", title: t.error, cell: ({ code }) => <ProblemLink code={code} /> },
    { name: "text", title: t.text, cell: ({ text }) => <Raw text={text} limit={300} />, uncut: ({ text }) => <RawBlock text={text} label={t.text} /> },
    { name: "thread", title: t.thread, cell: ({ threadId }) => threadId && <Code text={threadId} limit={128} /> },
    { name: "caller", title: t.caller, cell: ({ caller }) => <Raw text={caller} limit={128} /> },
  ];
  return isOfTool ? all.filter(({ name }) => name !== "tool") : all;
}
