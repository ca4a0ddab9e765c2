// Keys that work on the whole page. Pages add their own while they are shown.

import { useLayoutEffect } from "preact/hooks";

export type KeyMap = Record<string, (event: KeyboardEvent) => void>;

const maps: KeyMap[] = [];
let firstKey = "";
let timer: ReturnType<typeof setTimeout> | undefined;

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** The keys of a component, while it is shown. Two keys in a row are written `g t`. */
export function useKeys(map: KeyMap): void {
  useLayoutEffect(() => {
    maps.push(map);
    return () => void maps.splice(maps.indexOf(map), 1);
  });
}

function find(keys: string): ((event: KeyboardEvent) => void) | undefined {
  for (let index = maps.length - 1; index >= 0; index--) {
    const act = maps[index]?.[keys];
    if (act) return act;
  }
  return undefined;
}

export function startKeyboard(): void {
  addEventListener("keydown", (event) => {
    const withControl = event.ctrlKey || event.metaKey;
    if (event.isComposing || event.altKey) return;
    const key = withControl ? `Ctrl-${event.key.toLowerCase()}` : event.key;
    // A dialog has the keyboard to itself, and letters typed into a field are text.
    if (document.querySelector("dialog[open]") || (!withControl && isTyping(event.target))) return;
    const act = (firstKey && find(`${firstKey} ${key}`)) || find(key);
    clearTimeout(timer);
    firstKey = key === "g" && !firstKey ? "g" : "";
    if (firstKey) timer = setTimeout(() => (firstKey = ""), 1500);
    if (!act) return;
    event.preventDefault();
    act(event);
  });
}
