// The frame around every page: navigation, bars, dialogs, keys, and the title of the window.

import { useEffect } from "preact/hooks";
import { plain, shorten } from "../base/text.ts";
import { pendingCount } from "../data/approvals.ts";
import { logout, may, session } from "../data/session.ts";
import { texts } from "../i18n/index.ts";
import { ActButton } from "../ui/button.tsx";
import { Boundary } from "../ui/boundary.tsx";
import { useCurrentInView } from "../ui/current-in-view.ts";
import { Icon } from "../ui/icon.tsx";
import { useKeys } from "../ui/keyboard.ts";
import { Notices, sayError } from "../ui/notice.tsx";
import { Raw } from "../ui/raw.tsx";
import { openDialog } from "../ui/open-dialog.ts";
import { address, go, type PageName, route } from "../ui/router.ts";
import { sections } from "../ui/sections.ts";
import { Loading, ReadFailure } from "../ui/state.tsx";
import { Page } from "../pages/page.tsx";
import { loadSession } from "../data/session.ts";
import { Bars } from "./connection-bar.tsx";
import { Help } from "./help.tsx";
import { Login } from "./login.tsx";
import { Palette } from "./palette.tsx";
import { Preferences } from "./preferences.tsx";

export function App() {
  const current = session.value;
  const t = texts.value;
  if (current.state === "loading") return <main id="main" class="login"><Loading /></main>;
  if (current.state === "login") return <Login hasEnded={current.hasEnded} />;
  if (current.state === "unreachable") {
    return (
      <main id="main" class="login">
        <div class="card">
          <h1>{t.connection.unreachable}</h1>
          <ReadFailure error={current.error} retry={() => void loadSession()} />
        </div>
      </main>
    );
  }
  return (
    <Boundary of="">
      <Frame />
    </Boundary>
  );
}

function Frame() {
  const open = openDialog.value;
  const setOpen = (name: typeof open) => void (openDialog.value = name);
  const t = texts.value;
  const close = () => setOpen("none");
  const find = () => setOpen("palette");
  useKeys({
    "/": find,
    "Ctrl-k": find,
    "?": () => setOpen("help"),
    ...Object.fromEntries(sections.map(({ key, href }) => [`g ${key}`, () => go(href())])),
  });
  useTitle();
  return (
    <div class="shell">
      <a class="skip" href="#main">
        {t.nav.skip}
      </a>
      <header class="top">
        <a class="brand" href={address.overview()} data-raw>
          Toolhub
        </a>
        <button type="button" class="find" onClick={find}>
          <Icon name="search" /> <span class="grow">{t.palette.placeholderShort}</span> <kbd data-raw>/</kbd>
        </button>
        <User />
        <button type="button" class="icon-button" aria-label={t.help.title} title={t.help.title} onClick={() => setOpen("help")}>
          <Icon name="question" />
        </button>
        <button type="button" class="icon-button" aria-label={t.preferences.title} title={t.preferences.title} onClick={() => setOpen("preferences")}>
          <Icon name="settings" />
        </button>
      </header>
      <Navigation />
      <div class="content">
        <Bars />
        <main id="main" tabIndex={-1}>
          <Boundary of={route.value.path}>
            <Page />
          </Boundary>
        </main>
      </div>
      <Notices />
      {open === "palette" && <Palette close={close} />}
      {open === "help" && <Help close={close} />}
      {open === "preferences" && <Preferences close={close} />}
    </div>
  );
}

function Navigation() {
  const t = texts.value.nav;
  const current = route.value.page;
  const row = useCurrentInView<HTMLElement>(current);
  return (
    <nav ref={row} class="main-nav" aria-label={t.label}>
      {sections.filter(({ scope }) => !scope || may(scope)).map(({ name, icon, href, pages }) => (
        <a key={name} href={href()} aria-current={pages.includes(current) ? "page" : undefined}>
          <Icon name={icon} />
          {t[name]}
          {name === "approvals" && pendingCount.value > 0 && (
            <span class="count">
              {pendingCount.value}
              <span class="hidden"> {t.waiting}</span>
            </span>
          )}
        </a>
      ))}
    </nav>
  );
}

function User() {
  const t = texts.value.nav;
  const current = session.value;
  if (current.state !== "in" || current.session.local) return <span class="account quiet">{t.local}</span>;
  return (
    <span class="account">
      <Icon name="person" />
      <span class="ellipsis">
        <Raw text={current.session.caller ?? ""} limit={60} />
      </span>
      <ActButton class="link" act={() => logout().catch(sayError)}>
        {t.logout}
      </ActButton>
    </span>
  );
}

function useTitle(): void {
  const t = texts.value;
  const { page, param } = route.value;
  const names: Record<PageName, string> = {
    overview: t.nav.overview,
    tools: t.nav.tools,
    tool: param,
    calls: t.nav.calls,
    call: t.calls.one,
    approvals: t.nav.approvals,
    approval: t.nav.approvals,
    threads: t.nav.threads,
    thread: param,
    run: t.runs.one,
    state: t.nav.state,
    context: param,
    graph: t.nav.graph,
    servers: t.nav.servers,
    server: param,
    nodes: t.nav.nodes,
    alerts: t.nav.alerts,
    settings: t.nav.settings,
    unknown: t.unknown.title,
  };
  const count = pendingCount.value;
  useEffect(() => {
    document.title = `${count > 0 ? `(${count}) ` : ""}${plain(shorten(names[page], 200))} · Toolhub`;
  });
}
