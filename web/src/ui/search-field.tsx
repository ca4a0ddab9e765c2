// A search whose words stand in the address.

import { rank } from "../base/match.ts";
import { texts } from "../i18n/index.ts";
import { route, setQuery } from "./router.ts";

const words = (): string => route.value.query.get("q") ?? "";

/** Whether a text has the words that are searched. */
export const isSearched = (text: string): boolean => rank(words(), text) !== null;

export function SearchField() {
  const label = texts.value.settings.search;
  return <input type="search" aria-label={label} placeholder={label} value={words()} spellcheck={false} onInput={(event) => setQuery({ q: event.currentTarget.value })} />;
}
