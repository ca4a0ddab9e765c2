// Definitions of a server that changed or are new: what is different, and their approval.

import { useMemo, useState } from "preact/hooks";
import type { DefinitionChange } from "../../api/types.ts";
import { useResource } from "../../data/resource.ts";
import { approveDefinition, changesOf } from "../../data/servers.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { Confirm } from "../../ui/confirm.tsx";
import { Diff } from "../../ui/diff.tsx";
import { Fresh } from "../../ui/fresh.tsx";
import { say } from "../../ui/notice.tsx";
import { Code } from "../../ui/raw.tsx";

export function Changes({ name }: { name: string }) {
  const t = texts.value.servers;
  const resource = useMemo(() => changesOf(name), [name]);
  const snapshot = useResource(resource).value;
  // What is asked about, as it was shown: a definition that changes meanwhile has another digest.
  const [asked, ask] = useState<DefinitionChange | null>(null);
  if (!snapshot || snapshot.value.length === 0) return null;
  const close = () => ask(null);
  const approve = () =>
    approveDefinition(name, asked!)
      .then(() => say(t.approved))
      .finally(() => resource.read());
  return (
    <section class="card changes">
      <h2>{t.changes} <span class="count">{snapshot.value.length}</span></h2>
      <p class="quiet">{t.changesText}</p>
      <Fresh of={snapshot}>
        {snapshot.value.map((change) => (
          <article key={change.name}>
            <div class="card-head">
              <h3><Code text={change.name} /> <span class="tag">{change.isNew ? t.isNew : t.hasChanged}</span></h3>
              {may("admin") && <button type="button" onClick={() => ask(change)}>{t.approve}…</button>}
            </div>
            {change.differences.map(({ path, before, after }) => (
              <div key={path}>
                <Code text={path} limit={600} />
                <Diff before={textOf(before)} after={textOf(after)} />
              </div>
            ))}
          </article>
        ))}
      </Fresh>
      {asked && (
        <Confirm title={<>{t.approve}: <Code text={asked.name} /></>} word={t.approve} isDanger={false} close={close} act={approve}>
          <p>{t.approveText}</p>
        </Confirm>
      )}
    </section>
  );
}

const textOf = (value: unknown): string => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, null, 2));
