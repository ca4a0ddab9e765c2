// What was said and done in a thread, in order: messages, calls, and what happens now.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Call, Message, Run } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { pretty } from "../../base/json.ts";
import { shorten } from "../../base/text.ts";
import { draftOf } from "../../data/approvals.ts";
import { followRun } from "../../data/runs.ts";
import { openRun, type ThreadView } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { CallBadge, RunBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";
import { asks, InlineApproval, OpenCalls } from "../runs/open-calls.tsx";
import { CancelRun, RunError } from "../runs/run.tsx";

const firstShown = 100;
/** Of one message. */
const shownCalls = 20;

type Item = { at: string; message: Message } | { at: string; call: Call };

export function Conversation({ id, view, reread }: { id: string; view: ThreadView; reread: () => Promise<void> }) {
  const t = texts.value.threads;
  const [shown, setShown] = useState(firstShown);
  const end = useRef<HTMLDivElement>(null);
  const items: Item[] = [...view.messages.map((message) => ({ at: message.at, message })), ...view.calls.map((call) => ({ at: call.startedAt, call }))];
  // Times of the server have one form, so they are compared as texts. The order of messages stays.
  items.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
  const run = openRun(view);
  const newest = view.runs[0];
  const last = view.messages.at(-1)?.seq ?? 0;
  const isShown = useRef(false);
  // The end is in view at first, and stays in view when something is added.
  useEffect(() => {
    const box = end.current;
    if (box && (!isShown.current || box.getBoundingClientRect().top < innerHeight * 1.5)) box.scrollIntoView({ block: "nearest" });
    isShown.current = true;
  }, [last, view.calls.length, run?.status]);
  const results = new Map(view.messages.flatMap((message) => (message.role === "tool" ? message.results : [])).map((result) => [result.id, result]));
  return (
    <>
      {items.length === 0 && !run && <p class="quiet">{t.nothingYet}</p>}
      {items.length > shown && (
        <button type="button" onClick={() => setShown(shown + 5 * firstShown)}>
          {t.earlier(items.length - shown)}
        </button>
      )}
      {view.hasOlderCalls && items.length <= shown && (
        <p class="quiet">
          {t.olderCalls} <a href={address.calls(new URLSearchParams({ thread: id }).toString())}>{texts.value.calls.callsOfThread}</a>
        </p>
      )}
      <ol class="conversation" aria-label={t.conversation}>
        {items.slice(-shown).map((item) => ("message" in item ? <MessageItem key={`m${item.message.seq}`} message={item.message} results={results} /> : <Direct key={item.call.id} call={item.call} />))}
        {run && <OpenRunItem key={run.id} run={run} view={view} reread={reread} />}
      </ol>
      {newest && !run && <RunError run={newest} />}
      {newest && !run && <OpenCalls run={newest} done={reread} />}
      {newest?.status === "cancelled" && <p class="quiet">{t.wasCancelled}</p>}
      <div ref={end} class="conversation-end" />
    </>
  );
}

type Results = ReadonlyMap<string, Extract<Message, { role: "tool" }>["results"][number]>;

function MessageItem({ message, results }: { message: Message; results: Results }) {
  const t = texts.value.threads;
  // Results stand below the calls that they answer.
  if (message.role === "tool") return null;
  return (
    <li class={`said ${message.role}`}>
      <p class="quiet role">
        {texts.value.approvals.role[message.role]} · <Time at={message.at} />
        {message.role === "user" && <> · <a href={address.run(message.runId)}>{texts.value.runs.one}</a></>}
      </p>
      {message.role === "assistant" && message.reasoning && (
        <details>
          <summary class="quiet">{t.reasoning}</summary>
          <RawBlock text={message.reasoning} label={t.reasoning} />
        </details>
      )}
      {message.content && <Text text={message.content} />}
      {message.role === "assistant" &&
        (message.calls ?? []).slice(0, shownCalls).map((call) => {
          const result = results.get(call.id);
          return (
            <Done key={call.id} tool={call.tool} id={result?.callId ?? null} args={call.malformed ?? pretty(call.arguments)} end={result && <CallBadge status={result.isError ? "error" : "success"} />}>
              {result && <RawBlock text={result.text} label={texts.value.calls.output} />}
            </Done>
          );
        })}
      {message.role === "assistant" && <MoreCalls count={message.calls?.length ?? 0} runId={message.runId} />}
    </li>
  );
}

/** The page of the run has all of its calls. */
const MoreCalls = ({ count, runId }: { count: number; runId: string }) => (count > shownCalls ? <a href={address.run(runId)}>{texts.value.attention.more(count - shownCalls)}</a> : null);

/** A text of the conversation: as it is, or in parts if it is huge. */
const Text = ({ text }: { text: string }) =>
  text.length > 4_000 ? (
    <RawBlock text={text} label={texts.value.threads.message} />
  ) : (
    <div class="text">
      <Raw text={text} limit={4_000} />
    </div>
  );

interface DoneProps {
  tool: string;
  id: string | null;
  args: string;
  end: ComponentChildren;
  children?: ComponentChildren;
}

/** A call in a line; its arguments and result open below it. */
function Done({ tool, id, args, end, children }: DoneProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="done" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Code text={tool} limit={64} /> {end} <span class="quiet"><Raw text={shorten(args.replace(/\s+/g, " "), 120)} limit={120} /></span>
      </summary>
      {isOpen && id && <p><a href={address.call(id)}>{texts.value.calls.one}</a></p>}
      {isOpen && <RawBlock text={args} label={texts.value.calls.arguments} />}
      {isOpen && children}
    </details>
  );
}

/** A call that no run made. */
function Direct({ call }: { call: Call }) {
  const t = texts.value.threads;
  return (
    <li class="said direct">
      <p class="quiet role">
        {t.directCall} {call.caller && <Raw text={call.caller} limit={64} />} · <Time at={call.startedAt} />
      </p>
      <p>
        <a href={address.call(call.id)}>
          <Code text={call.tool} limit={64} />
        </a>{" "}
        <CallBadge status={call.status} /> {call.durationMs != null && <span class="quiet num">{duration(call.durationMs)}</span>} {call.error && <Code text={call.error.code} />}
      </p>
      {call.approval && (call.status === "awaiting_approval" || draftOf(call.approval.id).mode !== "none") && <InlineApproval id={call.approval.id} />}
    </li>
  );
}

/** The open run: the answer as it comes, the calls that are not in the conversation yet, and what it waits for. */
function OpenRunItem({ run, view, reread }: { run: Run; view: ThreadView; reread: () => Promise<void> }) {
  const t = texts.value.threads;
  const messages = view.messages.flatMap((message) => (message.role === "assistant" && message.runId === run.id ? [message] : []));
  const text = useStream(run, messages.length, reread);
  const isStored = messages.some(({ content }) => content === text);
  const stored = new Set(view.messages.flatMap((message) => (message.role === "tool" ? message.results.map(({ callId }) => callId) : [])));
  // Those that ask a person something stand below with their question.
  const calls = run.calls.filter((call) => !stored.has(call.id) && !asks(call));
  return (
    <li class="said assistant now">
      <p class="role">
        <span class="quiet">{texts.value.approvals.role.assistant}</span> <a href={address.run(run.id)}><RunBadge status={run.status} /></a>{" "}
        <CancelRun run={run} done={reread} />
      </p>
      <div role="status" aria-live="polite">
        {text && !isStored ? <Text text={text} /> : run.status === "running" && calls.length === 0 && <p class="quiet">{t.thinking}</p>}
      </div>
      {calls.slice(0, shownCalls).map((call) => (
        <p key={call.id}>
          <a href={address.call(call.id)}>
            <Code text={call.tool} limit={64} />
          </a>{" "}
          <CallBadge status={call.status} />
        </p>
      ))}
      <MoreCalls count={calls.length} runId={run.id} />
      <OpenCalls run={run} done={reread} />
    </li>
  );
}

/** A part of the message that the model writes, and what is known of it. */
interface Streamed {
  text: string;
  /** `cut` if its beginning was missed or more of it was; the next part then replaces it. */
  is: "cut" | "followed" | "whole";
  /** Whether a message ended before it on the same connection, so that it is not the one that is stored next. */
  isNext: boolean;
}

const nothing: Streamed = { text: "", is: "cut", isNext: false };

/** Adds a part. A text whose beginning was missed begins with dots. */
function add(before: Streamed, part: string, isRestarted: boolean): Streamed {
  if (isRestarted) return { text: part, is: "followed", isNext: before.isNext };
  if (before.is === "followed") return { ...before, text: before.text + part };
  const isNext = before.is === "whole";
  return { text: isNext ? part : `…${part}`, is: "followed", isNext };
}

/**
 * The text of the message that the model writes now. The stream is open only while the run goes on and the page is seen: a browser
 * opens six connections to a server at most, for all tabs. The stream sends nothing of what came before it.
 */
function useStream(run: Run, storedMessages: number, reread: () => Promise<void>): string {
  const [streamed, setStreamed] = useState(nothing);
  const [isSeen, setSeen] = useState(!document.hidden);
  useEffect(() => {
    const look = () => setSeen(!document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  const isFollowed = isSeen && run.status === "running";
  useEffect(() => {
    if (!isFollowed) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const begin = () => setStreamed(({ text }) => ({ ...nothing, text }));
    const end = followRun(run.id, begin, (event) => {
      if (event.event === "message.delta") {
        const part = String(event.text ?? "");
        return setStreamed((before) => add(before, part, event.again === true));
      }
      if (event.event === "message.completed") setStreamed({ text: String(event.content ?? ""), is: "whole", isNext: false });
      timer ??= setTimeout(() => ((timer = undefined), void reread()), 250);
    });
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [run.id, isFollowed]);
  // The stored message stands above. A whole text is compared with it; of one that was cut only the order is known.
  useEffect(() => setStreamed((before) => (before.is === "whole" || before.isNext ? before : nothing)), [storedMessages]);
  return streamed.text;
}
