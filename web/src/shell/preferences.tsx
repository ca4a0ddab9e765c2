// How this browser shows the page: theme, language, time zone, notifications.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { timeZone } from "../base/format.ts";
import { store, stored } from "../base/storage.ts";
import { chooseLanguage, language, type Language, texts } from "../i18n/index.ts";
import { Dialog } from "../ui/dialog.tsx";
import { chooseNotifications, notifications } from "./notifications.ts";

export type Theme = "system" | "light" | "dark";

const savedTheme = stored("theme");
export const theme = signal<Theme>(savedTheme === "light" || savedTheme === "dark" ? savedTheme : "system");

export function startTheme(): void {
  theme.subscribe((chosen) => {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
  });
}

function chooseTheme(chosen: Theme): void {
  store("theme", chosen === "system" ? null : chosen);
  theme.value = chosen;
}

function chooseZone(chosen: string): void {
  store("timeZone", chosen || null);
  timeZone.value = chosen;
}

const zones = (): string[] => ["UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];

export function Preferences({ close }: { close: () => void }) {
  const t = texts.value.preferences;
  const [isRefused, setRefused] = useState(false);
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <Dialog title={t.title} close={close}>
      <div class="form">
        <fieldset>
          <legend>{t.theme}</legend>
          <div class="choices">
            {(["system", "light", "dark"] as const).map((name) => (
              <label key={name}>
                <input type="radio" name="theme" checked={theme.value === name} onChange={() => chooseTheme(name)} />
                {t.themes[name]}
              </label>
            ))}
          </div>
        </fieldset>
        <fieldset>
          <legend>{t.language}</legend>
          <div class="choices">
            {(["en", "zh"] satisfies Language[]).map((name) => (
              <label key={name} lang={name}>
                <input type="radio" name="language" checked={language.value === name} onChange={() => chooseLanguage(name)} />
                <span data-raw>{name === "en" ? "English" : "中文"}</span>
              </label>
            ))}
          </div>
        </fieldset>
        <label>
          {t.timeZone}
          <select value={timeZone.value} onChange={(event) => chooseZone(event.currentTarget.value)}>
            <option value="">{t.browserZone(own)}</option>
            {zones().map((zone) => (
              <option key={zone} value={zone} data-raw>
                {zone}
              </option>
            ))}
          </select>
        </label>
        {typeof Notification !== "undefined" && (
          <label class="check">
            <input
              type="checkbox"
              checked={notifications.value}
              onChange={(event) => void chooseNotifications(event.currentTarget.checked).then((allowed) => setRefused(!allowed))}
            />
            {t.notify}
          </label>
        )}
        {isRefused && <p class="error-text" role="alert">{t.notifyRefused}</p>}
        <p class="quiet">{t.thisBrowser}</p>
      </div>
    </Dialog>
  );
}
