// The connection of an MCP server: its state, why it is not connected, and the button that connects it again.

import type { McpServer, McpServerInfo } from "../../api/types.ts";
import { restartServer } from "../../data/facts.ts";
import { may } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import type { IconName } from "../../ui/icon.tsx";
import { say } from "../../ui/notice.tsx";
import { Raw } from "../../ui/raw.tsx";
import { Badge, type Tone } from "../../ui/status.tsx";
import { Ago, Countdown } from "../../ui/time.tsx";

type Either = McpServer | McpServerInfo;

const looks: Record<Either["connection"], [IconName, Tone]> = {
  connected: ["check", "good"],
  connecting: ["clock", "info"],
  disconnected: ["lost", "bad"],
  disabled: ["off", "off"],
};

export function ConnectionState({ server: { connection, since, lastError, nextAttempt } }: { server: Either }) {
  const t = texts.value;
  const [icon, tone] = looks[connection];
  return (
    <>
      <Badge icon={icon} tone={tone} word={t.connectionWord[connection]} /> <Ago at={since} />
      {lastError && <div><Raw text={lastError} limit={400} /></div>}
      {nextAttempt && <div class="quiet">{t.attention.nextAttempt} <Countdown until={nextAttempt} /></div>}
    </>
  );
}

export function RestartButton({ server }: { server: Either }) {
  const t = texts.value;
  if (server.connection === "disabled" || !may("tools:write")) return null;
  return <ActButton act={() => restartServer(server.name).then(() => say(t.attention.restarting))}>{t.servers.restart}</ActButton>;
}
