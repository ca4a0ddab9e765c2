// What a call that waits was given, and the answers to it: the same on the page of the approval and in a conversation.

import { useMemo } from "preact/hooks";
import type { Approval, Tool } from "../../api/types.ts";
import { type Resource, useResource } from "../../data/resource.ts";
import { may } from "../../data/session.ts";
import { toolOf } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Icon } from "../../ui/icon.tsx";
import { Code } from "../../ui/raw.tsx";
import { Loading } from "../../ui/state.tsx";
import { Arguments } from "./arguments.tsx";
import { Decision } from "./decision.tsx";

/** The tool that an approval is about; null while it is being read, and if it is gone. */
export interface Asking {
  tool: Tool | null;
  isLoading: boolean;
}

export function useAsking(approval: Approval): Asking {
  const resource = useMemo(() => toolOf(approval.tool), [approval.tool]);
  const tool = useResource(resource).value?.value ?? null;
  return { tool, isLoading: tool === null && resource.error.value === null };
}

export function Answer({ approval, resource, asking: { tool, isLoading } }: { approval: Approval; resource: Resource<Approval>; asking: Asking }) {
  const t = texts.value.approvals;
  return (
    <>
      {isLoading ? <Loading /> : <Arguments approval={approval} schema={tool?.parameters} />}
      {may("approvals:write") ? (
        <Decision approval={approval} tool={tool} onAnswer={(answered) => (resource.set(() => answered), void resource.read())} />
      ) : (
        approval.state === "pending" && (
          <p class="callout info">
            <Icon name="info" /> <span>{t.mayNotAnswer} <Code text="approvals:write" /></span>
          </p>
        )
      )}
    </>
  );
}
