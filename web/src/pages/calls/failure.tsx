// Why a call did not succeed: for operators, for the model, and what helps.

import type { Call } from "../../api/types.ts";
import { base } from "../../base/page.ts";
import { duration } from "../../base/format.ts";
import { texts } from "../../i18n/index.ts";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";
import { address } from "../../ui/router.ts";
import { Row } from "../tools/why.tsx";

type CallFailure = NonNullable<Call["error"]>;

/** An error code that leads to the page of its meaning, in a tab of its own. */
export const ProblemLink = ({ code }: { code: string }) => (
  <a href={`${base}/problems/${encodeURIComponent(code)}`} target="_blank" rel="noreferrer" title={texts.value.calls.explained}>
    <Code text={code} />
  </a>
);

export function FailureCard({ error }: { error: CallFailure }) {
  const t = texts.value.calls;
  const later = error.retryAfterMs != null ? t.retryIn(duration(error.retryAfterMs)) : error.retryable ? t.retryable : t.notRetryable;
  return (
    <section class="card failure" aria-labelledby="failure">
      <h2 id="failure">{t.errorTitle}</h2>
      <dl class="facts">
        <Row name={t.error}>
          <ProblemLink code={error.code} />
          <p class="quiet">
            {later} · {error.counts ? t.counts : t.countsNot}
          </p>
        </Row>
        <Row name={t.operator}>
          <RawBlock text={error.detail} label={t.operator} />
        </Row>
        <Row name={t.model}>
          <RawBlock text={error.model} label={t.model} />
        </Row>
        {(error.errors ?? []).length > 0 && (
          <Row name={t.fields}>
            <ul class="plain-list">
              {(error.errors ?? []).map((field, index) => (
                <li key={index}>
                  <Code text={field.pointer || "/"} /> <Raw text={field.detail} limit={600} />
                </li>
              ))}
            </ul>
          </Row>
        )}
        {(error.missing ?? []).length > 0 && (
          <Row name={t.missing}>
            {(error.missing ?? []).map((name) => (
              <a key={name} href={address.tool(name)} class="spaced">
                <Code text={name} />
              </a>
            ))}
          </Row>
        )}
      </dl>
    </section>
  );
}
