// What was said and done in the conversation before the question.

import { useMemo } from "preact/hooks";
import type { Message } from "../../api/types.ts";
import { duration } from "../../base/format.ts";
import { type Conversation, conversationOf } from "../../data/approvals.ts";
import { Resource, useResource } from "../../data/resource.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { Loaded } from "../../ui/state.tsx";
import { CallBadge } from "../../ui/status.tsx";
import { Time } from "../../ui/time.tsx";

export function ConversationCard({ threadId }: { threadId: string }) {
  const t = texts.value.approvals;
  const resource = useMemo(() => new Resource<Conversation>(() => conversationOf(threadId)), [threadId]);
  useResource(resource);
  return (
    <>
      <h3>{t.conversation}</h3>
      <Loaded of={resource}>
        {({ value: { messages, calls } }) =>
          messages.length > 0 ? (
            <ol class="messages">
              {messages.map((message) => (
                <MessageLine key={message.seq} message={message} />
              ))}
            </ol>
          ) : calls.length > 0 ? (
            <ol class="messages">
              {calls.map((call) => (
                <li key={call.id} class="message">
                  <Code text={call.tool} limit={64} /> <CallBadge status={call.status} /> {call.durationMs != null && <span class="quiet num">{duration(call.durationMs)}</span>}
                </li>
              ))}
            </ol>
          ) : (
            <p class="quiet">{t.noConversation}</p>
          )
        }
      </Loaded>
    </>
  );
}

function MessageLine({ message }: { message: Message }) {
  const t = texts.value.approvals;
  return (
    <li class={`message ${message.role}`}>
      <span class="quiet role">
        {t.role[message.role]} · <Time at={message.at} />
      </span>
      {message.role === "tool" ? (
        message.results.map((result) => (
          <div key={result.id}>
            <Code text={result.tool} limit={64} /> <Raw text={result.text} limit={300} />
          </div>
        ))
      ) : (
        <>
          {message.content && (
            <div>
              <Raw text={message.content} limit={600} />
            </div>
          )}
          {message.role === "assistant" &&
            (message.calls ?? []).map((call) => (
              <div key={call.id}>
                {t.wants} <Code text={call.tool} limit={64} />
              </div>
            ))}
        </>
      )}
    </li>
  );
}
