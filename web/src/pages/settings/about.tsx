// What runs here, and who uses the page.

import { base } from "../../base/page.ts";
import { info } from "../../data/facts.ts";
import { useResource } from "../../data/resource.ts";
import { session } from "../../data/session.ts";
import { texts } from "../../i18n/index.ts";
import { Raw } from "../../ui/raw.tsx";
import { Row } from "../tools/why.tsx";
import { Names } from "./names.tsx";

export function About() {
  const t = texts.value.settings;
  useResource(info);
  const current = session.value;
  if (current.state !== "in") return null;
  const { version, features, caller, tenant, scopes } = current.session;
  return (
    <dl class="card facts">
      <Row name={texts.value.contexts.version}>
        <Raw text={version} />
      </Row>
      <Row name={t.features}>
        <Names of={features} />
      </Row>
      <Row name={t.view.config}>
        <Raw text={info.data.value?.value.configFile ?? "–"} />
      </Row>
      <Row name={texts.value.calls.caller}>
        <Raw text={caller || "–"} limit={128} />
      </Row>
      {tenant && (
        <Row name={t.tenant}>
          <Raw text={tenant} limit={128} />
        </Row>
      )}
      <Row name={t.scopes}>
        <Names of={scopes} />
      </Row>
      <Row name={t.api}>
        {["/docs", "/openapi.json"].map((path) => <a key={path} class="spaced" href={base + path} data-raw>{path}</a>)}
      </Row>
    </dl>
  );
}
