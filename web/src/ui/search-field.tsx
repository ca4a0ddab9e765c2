// A search whose words stand in the address as `q`.

import { route, setQuery } from "./router.ts";

export const searched = (): string => route.value.query.get("q") ?? "";

export const SearchField = ({ label }: { label: string }) => (
  <input type="search" aria-label={label} placeholder={label} value={searched()} spellcheck={false} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
);
