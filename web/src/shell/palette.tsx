// Finds tools, MCP servers, threads, waiting approvals and pages by a part of their name, and goes to a pasted id.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, segment } from "../api/client.ts";
import type { Call } from "../api/types.ts";
import { search } from "../base/match.ts";
import { pending } from "../data/approvals.ts";
import { servers } from "../data/facts.ts";
import { may } from "../data/session.ts";
import { searchThreads } from "../data/threads.ts";
import { tools } from "../data/tools.ts";
import { texts } from "../i18n/index.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Icon, type IconName } from "../ui/icon.tsx";
import { Raw } from "../ui/raw.tsx";
import { address, go } from "../ui/router.ts";
import { sections } from "../ui/sections.ts";

interface Target {
  icon: IconName;
  name: string;
  detail: string;
  isRaw: boolean;
  open: () => void | Promise<void>;
}

export function Palette({ close }: { close: () => void }) {
  const t = texts.value.palette;
  const [query, setQuery] = useState("");
  const [chosen, choose] = useState(0);
  const [failure, setFailure] = useState("");
  const list = useRef<HTMLUListElement>(null);
  // The lists stay as they are while the dialog is open: a result must not move under the cursor.
  useEffect(() => tools.use(), []);
  useEffect(() => servers.use(), []);
  const threads = useThreads(query.trim());
  const targets = findTargets(query.trim(), threads);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [chosen]);
  const open = async (target: Target | undefined) => {
    if (!target) return;
    try {
      await target.open();
      close();
    } catch (error) {
      setFailure(error instanceof ApiError && error.status === 404 ? t.notFound : String(error instanceof Error ? error.message : error));
    }
  };
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) choose((chosen + step + Math.max(1, targets.length)) % Math.max(1, targets.length));
    else if (event.key === "Enter") void open(targets[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={t.title} close={close} class="palette">
      <input
        class="palette-input"
        type="text"
        role="combobox"
        aria-label={t.label}
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={targets[chosen] ? `target-${chosen}` : undefined}
        autofocus
        spellcheck={false}
        placeholder={t.placeholder}
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setFailure("");
          choose(0);
        }}
        onKeyDown={onKey}
      />
      <ul ref={list} id="palette-list" role="listbox" aria-label={t.title}>
        {targets.map((target, index) => (
          <li key={index} id={`target-${index}`} role="option" aria-selected={index === chosen} onClick={() => void open(target)} onMouseMove={() => choose(index)}>
            <Icon name={target.icon} />
            <span class="grow ellipsis">{target.isRaw ? <Raw text={target.name} limit={120} /> : target.name}</span>
            <span class="quiet ellipsis">{target.detail}</span>
          </li>
        ))}
      </ul>
      {targets.length === 0 && !failure && <p class="quiet">{t.nothing}</p>}
      {failure && <p class="error-text" role="alert">{failure}</p>}
    </Dialog>
  );
}

/** The pause in typing after which the server is asked. */
const pauseMs = 200;

/** The ids of threads that fit. Those of a shorter query stay until the answer comes, as far as they fit. */
function useThreads(query: string): readonly string[] {
  const [found, setFound] = useState<readonly string[]>([]);
  useEffect(() => {
    if (!query) return;
    let isOver = false;
    const timer = setTimeout(() => {
      searchThreads(query).then((list) => isOver || setFound(list.map(({ id }) => id)), () => undefined);
    }, pauseMs);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [query]);
  return query ? found.filter((id) => id.toLowerCase().includes(query.toLowerCase())) : [];
}

function findTargets(query: string, threadIds: readonly string[]): Target[] {
  const all = texts.value;
  const byId = idTarget(query);
  if (byId) return [byId];
  const pages = sections.filter(({ scope }) => !scope || may(scope)).map(({ name, icon, href }): Target => ({ icon, name: all.nav[name], detail: all.palette.page, isRaw: false, open: () => go(href()) }));
  const waiting = (pending.data.value?.value ?? []).map(
    ({ id, tool, threadId }): Target => ({ icon: "question", name: tool, detail: threadId ? `${all.palette.approval} · ${threadId}` : all.palette.approval, isRaw: true, open: () => go(address.approval(id)) }),
  );
  const known = search(query, tools.data.value?.value ?? [], (tool) => tool.name, 20, (tool) => tool.description.slice(0, 300)).map(
    (tool): Target => ({ icon: "tools", name: tool.name, detail: all.status[tool.status], isRaw: true, open: () => go(address.tool(tool.name)) }),
  );
  const threads = threadIds.map(threadTarget);
  // The id of a context is that of its thread and a name.
  const context: Target[] = /^[^/\s]+\/[^/\s]+$/.test(query) && may("state:read") ? [{ icon: "state", name: query, detail: all.palette.context, isRaw: true, open: () => go(address.context(query)) }] : [];
  const found = search(query, servers.data.value?.value ?? [], (server) => server.name, 5).map(
    (server): Target => ({ icon: "servers", name: server.name, detail: all.attention.server, isRaw: true, open: () => go(address.server(server.name)) }),
  );
  const name = (target: Target) => target.name;
  return [...search(query, pages, name, sections.length), ...search(query, waiting, name, 10), ...(query ? found : []), ...known, ...threads, ...context];
}

const threadTarget = (id: string): Target => ({ icon: "threads", name: id, detail: texts.value.palette.thread, isRaw: true, open: () => go(address.thread(id)) });

function idTarget(query: string): Target | null {
  const t = texts.value.palette;
  const [, kind = ""] = /^(apr|call|run)_[0-9a-f-]{36}$/.exec(query) ?? [];
  if (/^th_[0-9a-f]{32}$/.test(query)) return threadTarget(query);
  // An unknown one has a page that says why, and what was probably meant.
  if (kind === "run") return { icon: "threads", name: query, detail: t.run, isRaw: true, open: () => go(address.run(query)) };
  if (kind === "apr") return { icon: "approvals", name: query, detail: t.approval, isRaw: true, open: () => go(address.approval(query)) };
  if (kind !== "call") return null;
  const open = async () => {
    // Asked for here, so that the dialog can say that there is none.
    await get<Call>(`/api/v1/calls/${segment(query)}`);
    go(address.call(query));
  };
  return { icon: "calls", name: query, detail: t.call, isRaw: true, open };
}
