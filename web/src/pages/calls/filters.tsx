// What selects calls. All of it stands in the address, so a list can be shared and comes back after a reload.

import { useEffect, useState } from "preact/hooks";
import { serverNow } from "../../base/clock.ts";
import { type CallFilter, callStatuses, errorKinds, filterNames, isFiltered, isSpan, slowest, spans } from "../../data/calls.ts";
import { useResource } from "../../data/resource.ts";
import { toolNames, tools } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { setQuery } from "../../ui/router.ts";

type TextName = "tool" | "thread" | "caller" | "run";

export function Filters({ filter, isRefusals }: { filter: CallFilter; isRefusals: boolean }) {
  const t = texts.value.calls;
  useResource(tools);
  const set = (name: keyof CallFilter) => (event: { currentTarget: { value: string } }) => setQuery({ [name]: event.currentTarget.value });
  return (
    <div class="filters call-filters" role="search" aria-label={t.filters}>
      <datalist id="tool-names">
        {toolNames.value.slice(0, 500).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <TextFilter name="tool" value={filter.tool} list="tool-names" />
      <TextFilter name="thread" value={filter.thread} />
      <TextFilter name="caller" value={filter.caller} />
      {filter.run && !isRefusals && <TextFilter name="run" value={filter.run} />}
      {!isRefusals && (
        <select aria-label={t.status} value={filter.status} onChange={set("status")}>
          <option value="">{t.anyStatus}</option>
          {callStatuses.map((name) => (
            <option key={name} value={name}>
              {texts.value.callStatus[name]}
            </option>
          ))}
        </select>
      )}
      <select aria-label={t.error} value={filter.code} onChange={set("code")}>
        <option value="">{t.anyError}</option>
        {errorKinds.map((name) => (
          <option key={name} value={name} data-raw>
            {name}
          </option>
        ))}
      </select>
      {!isRefusals && (
        <>
          <select aria-label={t.duration} value={filter.slower} onChange={set("slower")}>
            <option value="">{t.anyDuration}</option>
            {[...new Set([...slowest, filter.slower])].filter(Boolean).map((time) => (
              <option key={time} value={time}>
                {t.longerThan(time)}
              </option>
            ))}
          </select>
          <TimeFilter filter={filter} />
        </>
      )}
      {isFiltered(filter) && (
        <button type="button" class="link" onClick={() => setQuery(Object.fromEntries(filterNames.map((name) => [name, null])))}>
          {t.clear}
        </button>
      )}
    </div>
  );
}

/** A name or an id. It counts when it is whole: with Enter, or when the field is left. */
export function TextFilter({ name, value, list }: { name: TextName; value: string; list?: string }) {
  const label = texts.value.calls.filterBy[name];
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return (
    <input
      type="text"
      name={name}
      class="filter-text"
      aria-label={label}
      placeholder={label}
      list={list}
      spellcheck={false}
      autocomplete="off"
      value={typed}
      onInput={(event) => setTyped(event.currentTarget.value)}
      onChange={(event) => setQuery({ [name]: event.currentTarget.value.trim() })}
    />
  );
}

/** A moment as a field of the browser shows it, in the browser's time zone. */
function localTime(at: string): string {
  const time = Date.parse(at);
  return Number.isNaN(time) ? "" : new Date(time - new Date(time).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function TimeFilter({ filter }: { filter: CallFilter }) {
  const t = texts.value.calls;
  const isBetween = filter.until !== "" || (filter.since !== "" && !isSpan(filter.since));
  const choose = (value: string) =>
    setQuery(value === "between" ? { since: new Date(serverNow() - spans["1h"]).toISOString(), until: new Date(serverNow()).toISOString() } : { since: value, until: null });
  const moment = (name: "since" | "until", label: string) => (
    <input
      type="datetime-local"
      aria-label={label}
      title={label}
      value={localTime(filter[name])}
      onChange={(event) => {
        const time = Date.parse(event.currentTarget.value);
        setQuery({ [name]: Number.isNaN(time) ? null : new Date(time).toISOString() });
      }}
    />
  );
  return (
    <>
      <select aria-label={t.started} value={isBetween ? "between" : filter.since} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">{t.anyTime}</option>
        {Object.keys(spans).map((span) => (
          <option key={span} value={span}>
            {t.lastTime(span)}
          </option>
        ))}
        <option value="between">{t.between}</option>
      </select>
      {isBetween && (
        <>
          {moment("since", t.from)}
          {moment("until", t.to)}
        </>
      )}
    </>
  );
}
