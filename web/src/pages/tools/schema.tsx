// What a tool takes and returns: a table of its arguments, and the whole schemas.

import { useState } from "preact/hooks";
import type { Tool } from "../../api/types.ts";
import { pretty, schemaFields } from "../../base/json.ts";
import { texts } from "../../i18n/index.ts";
import { CopyButton } from "../../ui/button.tsx";
import { Code, Raw, RawBlock } from "../../ui/raw.tsx";

/** More are shown on demand. */
const firstFields = 300;

export function SchemaTab({ tool }: { tool: Tool }) {
  const t = texts.value.schema;
  const fields = schemaFields(tool.parameters);
  const [shown, show] = useState(firstFields);
  return (
    <>
      <section class="card">
        <h2>{t.arguments}</h2>
        {fields.length === 0 ? (
          <p class="quiet">{t.noArguments}</p>
        ) : (
          <div class="scroll" tabIndex={0} role="group" aria-label={t.arguments}>
            <table>
              <thead>
                <tr>
                  <th scope="col">{t.name}</th>
                  <th scope="col">{t.type}</th>
                  <th scope="col">{t.required}</th>
                  <th scope="col">{t.description}</th>
                </tr>
              </thead>
              <tbody>
                {fields.slice(0, shown).map((field) => (
                  <tr key={field.name}>
                    <th scope="row">
                      <Code text={field.name} />
                    </th>
                    <td>
                      <Code text={field.type || "any"} />
                    </td>
                    <td>{field.required ? t.yes : <span class="quiet">{t.no}</span>}</td>
                    <td>
                      <Raw text={field.description} limit={400} />
                      {field.limits.map((limit) => (
                        <span key={limit} class="tag plain">
                          <Raw text={limit} limit={80} />
                        </span>
                      ))}
                      {field.default !== undefined && (
                        <span class="quiet">
                          {" "}
                          {t.default} <Code text={pretty(field.default)} limit={80} />
                        </span>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
            {fields.length > shown && (
              <button type="button" class="link" onClick={() => show(shown + firstFields)}>
                {texts.value.tryIt.moreEntries(fields.length - shown)}
              </button>
            )}
          </div>
        )}
      </section>
      <JsonCard title={t.inputSchema} value={tool.parameters} />
      {tool.outputSchema !== undefined && <JsonCard title={t.outputSchema} value={tool.outputSchema} />}
      {tool.config !== undefined && <JsonCard title={t.config} value={tool.config} />}
    </>
  );
}

function JsonCard({ title, value }: { title: string; value: unknown }) {
  const text = pretty(value);
  return (
    <section class="card">
      <div class="card-head">
        <h2>{title}</h2>
        <CopyButton text={text} />
      </div>
      <RawBlock text={text} label={title} />
    </section>
  );
}
