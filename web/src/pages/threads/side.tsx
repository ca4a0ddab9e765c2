// What belongs to a thread beside its conversation: its last run, the tools it is offered and why not others, its states and instances.

import { useMemo, useState } from "preact/hooks";
import { base } from "../../base/page.ts";
import { useResource } from "../../data/resource.ts";
import { agentOf } from "../../data/runs.ts";
import { may } from "../../data/session.ts";
import { agents, closeInstance, deleteThread, exportPath, fitsPatterns, instancesOf, statesOf, type ThreadTools, type ThreadView, toolsOf, type Withheld } from "../../data/threads.ts";
import { texts } from "../../i18n/index.ts";
import { ActButton } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { say } from "../../ui/notice.tsx";
import { Code, Raw } from "../../ui/raw.tsx";
import { address, go } from "../../ui/router.ts";
import { Loaded } from "../../ui/state.tsx";
import { RunBadge, ToolBadge } from "../../ui/status.tsx";
import { Ago } from "../../ui/time.tsx";
import { Row } from "../tools/why.tsx";
import { Numbers } from "../runs/facts.tsx";

export function Side({ id, view, agent }: { id: string; view: ThreadView; agent: string }) {
  const t = texts.value.threads;
  const run = view.runs[0];
  const query = new URLSearchParams({ thread: id }).toString();
  return (
    <aside class="side" aria-label={t.about}>
      {run && (
        <section class="card">
          <h2>{t.lastRun}</h2>
          <dl class="facts">
            <Row name={texts.value.runs.one}>
              <a href={address.run(run.id)}>
                <RunBadge status={run.status} /> <Ago at={run.startedAt} />
              </a>
            </Row>
            <Row name={texts.value.runs.agent}>
              <Code text={run.agent} />
            </Row>
            <Numbers run={run} agent={agentOf(agents.data.value?.value ?? [], run.agent)} />
          </dl>
          <p class="links">
            <a href={address.threads(`view=runs&${query}`)}>{t.allRuns}</a> · <a href={address.calls(query)}>{texts.value.calls.callsOfThread}</a>
          </p>
        </section>
      )}
      <Tools id={id} agent={agent} />
      {may("state:read") && <States id={id} />}
      <Instances id={id} />
    </aside>
  );
}

const shownTools = 40;

function Tools({ id, agent }: { id: string; agent: string }) {
  const t = texts.value.threads;
  const resource = useMemo(() => toolsOf(id), [id]);
  useResource(resource);
  return (
    <section class="card" id="thread-tools">
      <h2>{t.tools}</h2>
      <Loaded of={resource}>{(snapshot) => <ToolLists id={id} agent={agent} tools={snapshot.value} />}</Loaded>
    </section>
  );
}

function ToolLists({ id, agent, tools }: { id: string; agent: string; tools: ThreadTools }) {
  const t = texts.value.threads;
  const patterns = agentOf(agents.data.value?.value ?? [], agent)?.patterns ?? null;
  const own = (name: string) => fitsPatterns(name, patterns);
  const offered = tools.offered.filter(own);
  const withheld = tools.withheld.filter(({ name }) => own(name));
  const others = tools.offered.length + tools.withheld.length - offered.length - withheld.length;
  const href = (name: string) => address.tool(name, new URLSearchParams({ thread: id }).toString());
  return (
    <>
      <h3>{t.offered(offered.length)}</h3>
      <p class="names">
        {offered.slice(0, shownTools).map((name) => (
          <a key={name} href={href(name)}>
            <Code text={name} limit={64} />
          </a>
        ))}
        {offered.length > shownTools && <a href={address.tools()}>{texts.value.attention.more(offered.length - shownTools)}</a>}
      </p>
      {withheld.length > 0 && (
        <>
          <h3>{t.withheld(withheld.length)}</h3>
          <ul class="withheld">
            {withheld.slice(0, shownTools).map((tool) => (
              <li key={tool.name}>
                <a href={href(tool.name)}>
                  <Code text={tool.name} limit={64} />
                </a>{" "}
                {tool.status !== "available" && <ToolBadge status={tool.status} />} <Reason tool={tool} href={href} />
              </li>
            ))}
          </ul>
          {withheld.length > shownTools && <a href={address.tools("status=withheld")}>{texts.value.attention.more(withheld.length - shownTools)}</a>}
        </>
      )}
      {others > 0 && <p class="quiet">{t.notForAgent(others)}</p>}
    </>
  );
}

function Reason({ tool, href }: { tool: Withheld; href: (name: string) => string }) {
  const t = texts.value.threads;
  if (tool.deniedBy) {
    return (
      <>
        {t.denied} <Raw text={tool.deniedBy} limit={300} />
      </>
    );
  }
  if (tool.status === "available") return <a href={href(tool.name)}>{t.why}</a>;
  return <Raw text={tool.reason} limit={300} />;
}

function States({ id }: { id: string }) {
  const t = texts.value.threads;
  const resource = useMemo(() => statesOf(id), [id]);
  useResource(resource);
  return (
    <section class="card">
      <h2>{t.states}</h2>
      <Loaded of={resource}>
        {({ value }) =>
          value.length === 0 ? (
            <p class="quiet">{t.noStates}</p>
          ) : (
            <ul class="plain-list">
              {value.map((context) => (
                <li key={context.id}>
                  <a href={address.context(context.id)}>
                    <Code text={context.toolType} limit={64} />
                  </a>{" "}
                  <span class="quiet">
                    <Raw text={Object.keys(context.kinds).join(", ")} /> · <Ago at={context.updatedAt} />
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}

function Instances({ id }: { id: string }) {
  const t = texts.value.threads;
  const resource = useMemo(() => instancesOf(id), [id]);
  useResource(resource);
  return (
    <section class="card" id="instances">
      <h2>{t.instances}</h2>
      <Loaded of={resource}>
        {({ value }) =>
          value.length === 0 ? (
            <p class="quiet">{t.noInstances}</p>
          ) : (
            <ul class="plain-list">
              {value.map(({ tool, madeAt, inUse }) => (
                <li key={tool}>
                  <Code text={tool} limit={64} />{" "}
                  <span class="quiet">
                    <Ago at={madeAt} /> {inUse && t.inUse}
                  </span>{" "}
                  {may("tools:call") && <ActButton act={() => closeInstance(id, tool).then(() => resource.read())}>{texts.value.common.close}</ActButton>}
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}

export const ExportLink = ({ id }: { id: string }) => (
  <a class="button" href={base + exportPath(id)} download={`${id}.json`}>
    {texts.value.threads.export}
  </a>
);

export function DeleteThread({ id }: { id: string }) {
  const t = texts.value.threads;
  const [isAsked, ask] = useState(false);
  const remove = () =>
    deleteThread(id).then(() => {
      say(t.deleted);
      go(address.threads());
    });
  return (
    <>
      <button type="button" class="danger" onClick={() => ask(true)}>
        {t.delete}
      </button>
      {isAsked && (
        <Confirm title={t.deleteTitle} word={t.deleteNow} close={() => ask(false)} act={remove}>
          <p>
            <Code text={id} limit={128} />
          </p>
          <p>{t.deleteText}</p>
        </Confirm>
      )}
    </>
  );
}
