// The texts of the page in the chosen language.

import { computed, signal } from "@preact/signals";
import { setRequestLanguage } from "../api/client.ts";
import { store, stored } from "../base/storage.ts";
import { en, type Messages } from "./en.ts";
import { pseudo } from "./pseudo.ts";
import { zh } from "./zh.ts";

/** `pseudo` marks every text, so that a test finds those that are not translated. */
export type Language = "en" | "zh" | "pseudo";

const languages: Record<Language, Messages> = { en, zh, pseudo: pseudo(en) };

function preferred(): Language {
  const saved = stored("language");
  if (saved === "en" || saved === "zh" || saved === "pseudo") return saved;
  return typeof navigator !== "undefined" && navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export const language = signal<Language>(preferred());
export const texts = computed<Messages>(() => languages[language.value]);

/** For an element's `lang`, and for the texts that the server translates. */
export const languageTag = computed(() => (language.value === "zh" ? "zh-CN" : "en"));

language.subscribe((chosen) => {
  setRequestLanguage(chosen === "zh" ? "zh" : "en");
  if (typeof document !== "undefined") document.documentElement.lang = languageTag.peek();
});

export function chooseLanguage(chosen: Language): void {
  store("language", chosen);
  language.value = chosen;
}
