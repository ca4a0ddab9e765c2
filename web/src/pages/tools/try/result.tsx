// What came of a call that was made here: followed until it has ended, cancelled on demand.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Call } from "../../../api/types.ts";
import { duration } from "../../../base/format.ts";
import { pretty, valueText } from "../../../base/json.ts";
import { callOf, cancelCall, hasEnded } from "../../../data/calls.ts";
import { useResource } from "../../../data/resource.ts";
import { texts } from "../../../i18n/index.ts";
import { ActButton, CopyButton } from "../../../ui/button.tsx";
import { Code, RawBlock } from "../../../ui/raw.tsx";
import { address } from "../../../ui/router.ts";
import { Loaded } from "../../../ui/state.tsx";
import { CallBadge } from "../../../ui/status.tsx";
import { contentText } from "../../calls/call.tsx";
import { FailureCard } from "../../calls/failure.tsx";

const followEveryMs = 400;

export function Result({ id }: { id: string }) {
  const t = texts.value.tryIt;
  const resource = useMemo(() => callOf(id), [id]);
  const snapshot = useResource(resource).value;
  useEffect(() => {
    if (snapshot && hasEnded(snapshot.value)) return;
    const timer = setTimeout(() => void resource.read(), followEveryMs);
    return () => clearTimeout(timer);
  }, [snapshot]);
  return (
    <div class="result" role="region" aria-label={t.result}>
      <Loaded of={resource}>{({ value: call }) => <Parts call={call} reread={() => resource.read()} />}</Loaded>
    </div>
  );
}

type View = "output" | "model" | "raw";

function Parts({ call, reread }: { call: Call; reread: () => Promise<void> }) {
  const t = texts.value.tryIt;
  const [asked, show] = useState<View>("output");
  const all: Record<View, string | null> = {
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
        {!hasEnded(call) && call.status !== "awaiting_approval" && <p class="quiet" role="status">{t.running}</p>}
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
            <RawBlock text={all[view] ?? ""} label={t.show[view]} />
          </>
        )}
      </section>
    </>
  );
}
