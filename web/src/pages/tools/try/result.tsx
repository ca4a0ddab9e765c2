// What came of a call that was made here: followed until it has ended, cancelled on demand.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Call } from "../../../api/types.ts";
import { bytes, duration } from "../../../base/format.ts";
import { isObject, type Json, pretty, valueText } from "../../../base/json.ts";
import { base } from "../../../base/page.ts";
import { callOf, cancelCall, hasEnded } from "../../../data/calls.ts";
import type { Progress } from "../../../data/progress.ts";
import { useResource } from "../../../data/resource.ts";
import { texts } from "../../../i18n/index.ts";
import { ActButton, CopyButton } from "../../../ui/button.tsx";
import { Code, Raw, RawBlock } from "../../../ui/raw.tsx";
import { address } from "../../../ui/router.ts";
import { Loaded } from "../../../ui/state.tsx";
import { CallBadge } from "../../../ui/status.tsx";
import { Tree } from "../../../ui/tree.tsx";
import { contentText } from "../../calls/call.tsx";
import { FailureCard } from "../../calls/failure.tsx";
import { TimelineCard } from "../../calls/timeline.tsx";

const followEveryMs = 400;

export function Result({ id, progress, onEnd }: { id: string; progress: Progress | undefined; onEnd: () => void }) {
  const t = texts.value.tryIt;
  const resource = useMemo(() => callOf(id), [id]);
  const snapshot = useResource(resource).value;
  useEffect(() => {
    if (snapshot && hasEnded(snapshot.value)) return onEnd();
    const timer = setTimeout(() => void resource.read(), followEveryMs);
    return () => clearTimeout(timer);
  }, [snapshot]);
  return (
    <div class="result" role="region" aria-label={t.result}>
      <Loaded of={resource}>{({ value: call }) => <Parts call={call} reread={() => resource.read()} progress={progress} />}</Loaded>
    </div>
  );
}

type View = "tree" | "output" | "model" | "raw";

function Parts({ call, reread, progress }: { call: Call; reread: () => Promise<void>; progress: Progress | undefined }) {
  const t = texts.value.tryIt;
  const [asked, show] = useState<View>("tree");
  const all: Record<View, string | null> = {
    tree: Array.isArray(call.output) || isObject(call.output) ? pretty(call.output) : null,
    output: call.output === undefined ? null : valueText(call.output),
    model: (call.content ?? []).length > 0 ? contentText(call) : null,
    raw: pretty(call),
  };
  const views = (Object.keys(all) as View[]).filter((name) => all[name] !== null);
  const view = views.includes(asked) ? asked : (views[0] ?? "raw");
  return (
    <>
      {call.error && <FailureCard error={call.error} />}
      <section class="card">
        <div class="card-head">
          <h2>
            {t.result} <CallBadge status={call.status} /> {call.durationMs != null && <span class="num quiet">{duration(call.durationMs)}</span>}
          </h2>
          {hasEnded(call) ? (
            <a href={address.call(call.id)}>{t.record}</a>
          ) : (
            <ActButton class="danger" act={() => cancelCall(call.id).then(reread)}>
              {t.cancel}
            </ActButton>
          )}
        </div>
        {call.status === "awaiting_approval" && call.approval && (
          <p>
            {t.waits} <a href={address.approval(call.approval.id)}><Code text={call.approval.id} /> {t.decide}</a>
          </p>
        )}
        {!hasEnded(call) && call.status !== "awaiting_approval" && <Reported progress={progress} />}
        {hasEnded(call) && (
          <>
            <div class="card-head">
              <div class="segmented" role="group" aria-label={t.views}>
                {views.map((name) => (
                  <button key={name} type="button" aria-pressed={name === view} onClick={() => show(name)}>
                    {t.show[name]}
                  </button>
                ))}
              </div>
              <CopyButton text={all[view] ?? ""} />
            </div>
            {view === "tree" ? <Tree value={call.output as Json} label={t.show.tree} /> : <RawBlock text={all[view] ?? ""} label={t.show[view]} />}
            <Artifacts call={call} />
          </>
        )}
      </section>
      <TimelineCard call={call} />
    </>
  );
}

/** What the tool reports while it runs. */
function Reported({ progress }: { progress: Progress | undefined }) {
  const t = texts.value.tryIt;
  return (
    <div class="progress">
      <progress aria-label={t.running} max={1} value={progress?.fraction} />
      <p class="quiet" role="status">
        {progress?.message ? <Raw text={progress.message} limit={300} /> : t.running}
      </p>
    </div>
  );
}

/** Parts of the result that were too large for a model, to be downloaded. */
function Artifacts({ call }: { call: Call }) {
  const found = (call.content ?? []).flatMap((block) => ("type" in block && block.type === "artifact" ? [block] : []));
  if (found.length === 0) return null;
  return (
    <ul class="plain-list">
      {found.map(({ id, mimeType, bytes: size }) => (
        <li key={id}>
          <a href={`${base}/api/v1/artifacts/${encodeURIComponent(id)}`} download>
            {texts.value.tryIt.download}
          </a>{" "}
          <Code text={mimeType} /> · <span class="num">{bytes(size)}</span>
        </li>
      ))}
    </ul>
  );
}
