// Tries a tool: its arguments as a form or as JSON, the call, and what came of it.

import { useMemo, useState } from "preact/hooks";
import { type ApiError, toApiError } from "../../../api/client.ts";
import type { Tool } from "../../../api/types.ts";
import { canShow, fieldOf, initialValue, valueAt, withAt, withoutMasked } from "../../../base/form.ts";
import type { Json } from "../../../base/json.ts";
import { base, copyText } from "../../../base/page.ts";
import { command, curl, python, type SnippetCall } from "../../../base/snippets.ts";
import { serverNow } from "../../../base/clock.ts";
import { callOf } from "../../../data/calls.ts";
import { useProgress } from "../../../data/progress.ts";
import { useResource } from "../../../data/resource.ts";
import { may, session } from "../../../data/session.ts";
import { dryRun } from "../../../data/tools.ts";
import { newTryDraft, runDraft, setTryDraft, type TryDraft, tryDrafts } from "../../../data/try.ts";
import { texts } from "../../../i18n/index.ts";
import { ActButton } from "../../../ui/button.tsx";
import { Confirm } from "../../../ui/confirm.tsx";
import { Icon } from "../../../ui/icon.tsx";
import { Failure, say } from "../../../ui/notice.tsx";
import { Code } from "../../../ui/raw.tsx";
import { address, route } from "../../../ui/router.ts";
import { Loaded } from "../../../ui/state.tsx";
import { ProblemLink } from "../../calls/failure.tsx";
import { changedInvalid, Field, type Form, Members, type Path } from "./field.tsx";
import { type DryRun, Forecast, Problems } from "./forecast.tsx";
import { Result } from "./result.tsx";

export function TryTab({ tool }: { tool: Tool }) {
  const id = route.value.query.get("call");
  if (!id) return <TryForm tool={tool} start={initialValue(tool.parameters, tool.parameters) ?? {}} thread={route.value.query.get("thread") ?? ""} masked={[]} from="" />;
  return <FromCall key={id} tool={tool} id={id} />;
}

/** Begins with the arguments of an earlier call. */
function FromCall({ tool, id }: { tool: Tool; id: string }) {
  const resource = useMemo(() => callOf(id), [id]);
  useResource(resource);
  return (
    <Loaded of={resource}>
      {({ value: call }) => {
        const { value, masked } = withoutMasked((call.arguments ?? {}) as Json);
        return <TryForm tool={tool} start={value ?? {}} thread={call.threadId ?? ""} masked={masked} from={id} />;
      }}
    </Loaded>
  );
}

interface Props {
  tool: Tool;
  start: Json;
  thread: string;
  masked: readonly string[];
  from: string;
}

function TryForm({ tool, start, thread, masked, from }: Props) {
  const t = texts.value.tryIt;
  const name = [tool.name, from, thread].join(" ");
  const begin = useMemo(() => newTryDraft(start, thread), [name]);
  const draft = tryDrafts.value[name] ?? begin;
  const { value, view, threadId } = draft;
  const latest = () => tryDrafts.peek()[name] ?? begin;
  const change = (next: Partial<TryDraft>) => setTryDraft(name, { ...latest(), ...next });
  const [cleared, setCleared] = useState(0);
  const [invalid, setInvalid] = useState<readonly string[]>([]);
  const [error, setError] = useState<ApiError | null>(null);
  const [isAsking, setAsking] = useState(false);
  const progress = useProgress();
  const [forecast, setForecast] = useState<DryRun | null>(null);
  const problems = (error?.problem?.errors ?? forecast?.facts.call?.problems ?? []) as { pointer: string; detail: string; suggestion?: string }[];
  const missing = masked.filter((pointer) => (valueAt(value, pointer) ?? null) === null);
  const form: Form = {
    root: tool.parameters,
    set: (path, next) => change({ value: withAt(latest().value, path, next) ?? {} }),
    errorsAt: (pointer, isDeep = false) => {
      const isHere = (other: string) => other === pointer || (isDeep && other.startsWith(`${pointer}/`));
      const inner = (other: string) => (other === pointer ? "" : `${other.slice(pointer.length)}: `);
      return [
        ...missing.filter(isHere).map((other) => inner(other) + t.maskedField),
        ...problems.filter((one) => isHere(one.pointer)).map(({ pointer: other, detail, suggestion }) => inner(other) + [detail, suggestion].filter(Boolean).join("; ")),
      ];
    },
    markInvalid: (pointer, isInvalid) => setInvalid((before) => changedInvalid(before, pointer, isInvalid)),
    typed: draft.typed,
  };
  const attempt = async (act: () => Promise<unknown>) => {
    setAsking(false);
    setError(null);
    setForecast(null);
    try {
      await act();
    } catch (failure) {
      setError(toApiError(failure));
    }
  };
  const run = () => attempt(() => runDraft(tool, latest(), change));
  const tryDry = () => attempt(async () => setForecast({ facts: await dryRun(tool.name, value, threadId.trim()), of: value, at: serverNow() }));
  const clear = async () => {
    setTryDraft(name, { ...begin, value: start, threadId: thread, typed: new Map(), started: latest().started });
    setError(null);
    setForecast(null);
    setCleared(cleared + 1);
  };
  const ended = (id: string) => change({ started: latest().started.map((one) => (one.id === id ? { id, hasEnded: true } : one)) });
  const isDestructive = tool.annotations.destructive && !tool.annotations.readOnly;
  return (
    <div class="columns even">
      <section class="card try" aria-labelledby="try-arguments">
        <div class="card-head">
          <h2 id="try-arguments">{t.arguments}</h2>
          <div class="segmented" role="group" aria-label={t.as}>
            {(["form", "json"] as const).map((name) => (
              <button key={name} type="button" aria-pressed={name === view} disabled={invalid.length > 0} onClick={() => change({ view: name })}>
                {t[name]}
              </button>
            ))}
          </div>
        </div>
        {from && (
          <p class="quiet">
            {t.fromCall} <a href={address.call(from)}><Code text={from} /></a>
          </p>
        )}
        {masked.length > 0 && (
          <p class="callout warn">
            <Icon name="warning" />
            <span>{t.masked} {masked.map((pointer) => <Code key={pointer} text={`${pointer} `} />)}</span>
          </p>
        )}
        <Arguments key={cleared} form={form} value={value} view={view} />
        <label class="field">
          {t.thread}
          <input type="text" name="thread" spellcheck={false} autocomplete="off" value={threadId} onInput={(event) => change({ threadId: event.currentTarget.value })} />
          <span class="quiet field-about">{t.threadHint}</span>
        </label>
        {error && <Refused error={error} count={problems.length} />}
        <div class="actions">
          <ActButton disabled={invalid.length > 0} act={tryDry}>
            {t.dryRun}
          </ActButton>
          {may("tools:call") && (
            <>
              <ActButton class="primary" disabled={invalid.length > 0} act={async () => (isDestructive ? setAsking(true) : run())}>
                {t.run}
              </ActButton>
              <Copies tool={tool.name} value={value} threadId={threadId.trim()} />
            </>
          )}
          <ActButton act={clear}>{t.clear}</ActButton>
        </div>
        {!may("tools:call") && (
          <p class="callout info">
            <Icon name="info" /> <span>{t.needs} <Code text="tools:call" /></span>
          </p>
        )}
      </section>
      {forecast && <Forecast run={forecast} isOld={forecast.of !== value} />}
      {draft.started.map(({ id }) => (
        <Result key={id} id={id} progress={progress.get(id)} onEnd={() => ended(id)} />
      ))}
      {isAsking && (
        <Confirm title={t.confirmTitle} word={t.confirmRun} close={() => setAsking(false)} act={run}>
          <p>{t.confirmText}</p>
        </Confirm>
      )}
    </div>
  );
}

const wholePath: Path = [];

function Arguments({ form, value, view }: { form: Form; value: Json; view: "form" | "json" }) {
  const field = fieldOf(form.root, form.root);
  if (view === "json") return <Whole form={form} value={value} />;
  if (field.kind === "object" && canShow(field, value)) {
    if (field.members.length === 0) return <p class="quiet">{texts.value.tryIt.none}</p>;
    return <Members form={form} field={field} path={wholePath} value={value} />;
  }
  // Names that the schema does not list, or no object at all: only JSON can hold all of it.
  return <Whole form={form} value={value} />;
}

const Whole = ({ form, value }: { form: Form; value: Json }) => <Field form={form} schema={{}} path={wholePath} value={value} isRequired />;

function Refused({ error, count }: { error: ApiError; count: number }) {
  const t = texts.value.tryIt;
  return (
    <div class="callout bad" role="alert">
      <Icon name="cross" />
      <div class="grow">
        <strong>{count > 0 ? t.wrong(count) : t.refused}</strong> {error.code && <ProblemLink code={error.code} />}
        <div>
          {error.problem?.errors?.length ? <Problems of={error.problem.errors} /> : <Failure error={error} />}
        </div>
      </div>
    </div>
  );
}

const snippets = { curl, command, python } as const;

function Copies({ tool, value, threadId }: { tool: string; value: Json; threadId: string }) {
  const t = texts.value.tryIt;
  const current = session.value;
  const call: SnippetCall = { server: location.origin + base, tool, arguments: value, threadId, needsKey: current.state === "in" && !current.session.local };
  return (
    <>
      {(Object.keys(snippets) as (keyof typeof snippets)[]).map((name) => (
        <ActButton key={name} act={async () => say((await copyText(snippets[name](call))) ? t.copied : t.notCopied)}>
          {t.copy[name]}
        </ActButton>
      ))}
    </>
  );
}
