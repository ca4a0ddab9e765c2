// Asks for what maintenance and disabling need: a reason, and when it ends.

import { useState } from "preact/hooks";
import { serverNow } from "../../base/clock.ts";
import { setMaintenance } from "../../data/tools.ts";
import { texts } from "../../i18n/index.ts";
import { Confirm } from "../../ui/confirm.tsx";
import { Code } from "../../ui/raw.tsx";

const minute = 60_000;
const ends = [15, 60, 240, 1440] as const;

/** A time of a `datetime-local` field, in the zone of the browser; null if it is not in the future. */
function chosenTime(text: string): number | null {
  const time = Date.parse(text);
  return Number.isNaN(time) || time <= serverNow() ? null : time;
}

export function MaintenanceDialog({ name, close, done }: { name: string; close: () => void; done: () => void }) {
  const t = texts.value.tool;
  const [reason, setReason] = useState("");
  const [end, setEnd] = useState<string>("60");
  const [time, setTime] = useState("");
  const isWrong = end === "at" && chosenTime(time) === null;
  const until = () => (end === "never" ? null : end === "at" ? chosenTime(time) : serverNow() + Number(end) * minute);
  return (
    <Confirm
      title={<>{t.maintenanceOf} <Code text={name} limit={64} /></>}
      word={t.startMaintenance}
      isDanger={false}
      disabled={isWrong}
      close={close}
      act={() => setMaintenance(name, { reason: reason.trim(), until: until() }).then(done)}
    >
      <p class="quiet">{t.maintenanceText}</p>
      <label>
        {t.reason}
        <input type="text" name="reason" maxLength={500} autofocus value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <fieldset>
        <legend>{t.end}</legend>
        <div class="choices">
          {ends.map((minutes) => (
            <label key={minutes}>
              <input type="radio" name="end" checked={end === String(minutes)} onChange={() => setEnd(String(minutes))} />
              {t.after(minutes)}
            </label>
          ))}
          <label>
            <input type="radio" name="end" checked={end === "at"} onChange={() => setEnd("at")} />
            {t.at}
          </label>
          <label>
            <input type="radio" name="end" checked={end === "never"} onChange={() => setEnd("never")} />
            {t.untilReset}
          </label>
        </div>
      </fieldset>
      {end === "at" && (
        <label>
          {t.endTime}
          <input type="datetime-local" name="until" required aria-invalid={isWrong} value={time} onInput={(event) => setTime(event.currentTarget.value)} />
          {time && isWrong && <span class="error-text">{t.notFuture}</span>}
        </label>
      )}
    </Confirm>
  );
}

export function DisableDialog({ close, disable }: { close: () => void; disable: (reason: string) => Promise<unknown> }) {
  const t = texts.value.tool;
  const [reason, setReason] = useState("");
  return (
    <Confirm title={t.disableTitle} word={t.disableNow} close={close} act={() => disable(reason.trim())}>
      <p class="quiet">{t.disableText}</p>
      <label>
        {t.reason}
        <input type="text" name="reason" maxLength={500} autofocus value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </Confirm>
  );
}
