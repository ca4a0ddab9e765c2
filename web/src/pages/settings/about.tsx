// What runs here, and who uses the page.

import { base } from "../../base/page.ts";
import { info } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { session } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw } from "../../ui/raw.tsx";
import { Row } from "../tools/why.tsx";

export function About() {
  const t = texts.value.settings;
  useResource(info);
  const current = session.value;
  if (current.state !== "in") return null;
  const { version, features, local, caller, tenant, scopes } = current.session;
  const file = info.data.value?.value.configFile;
  return (
    <section class="card">
      <dl class="facts">
        <Row name={t.version}>
          <Raw text={version} />
        </Row>
        <Row name={t.features}>
          {features.map((name) => <span key={name} class="spaced"><Code text={name} /></span>)}
        </Row>
        {file && (
          <Row name={t.file}>
            <Code text={file} limit={1000} />
          </Row>
        )}
        <Row name={t.session}>{local ? t.local : <Code text={caller ?? ""} />}</Row>
        {!local && (
          <Row name={t.scopes}>
            {scopes.map((name) => <span key={name} class="spaced"><Code text={name} /></span>)}
          </Row>
        )}
        <Row name={t.tenant}>
          <Raw text={tenant ?? ""} />
        </Row>
        <Row name={t.apiPage}>
          <a href={`${base}/docs`} data-raw>/docs</a>
        </Row>
        <Row name={t.apiDocument}>
          <a href={`${base}/openapi.json`} data-raw>/openapi.json</a>
        </Row>
      </dl>
    </section>
  );
}
