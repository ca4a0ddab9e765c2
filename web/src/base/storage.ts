// Settings of this browser. Storage may be full or forbidden; the page works without it.

const prefix = "toolhub.";

export function stored(name: string): string | null {
  try {
    return localStorage.getItem(prefix + name);
  } catch {
    return null;
  }
}

export function store(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(prefix + name);
    else localStorage.setItem(prefix + name, value);
  } catch {
    // The setting then holds until the page is closed.
  }
}

/** A stored list of texts, for example dismissed lines. */
export function storedList(name: string): string[] {
  try {
    const list: unknown = JSON.parse(stored(name) ?? "[]");
    return Array.isArray(list) ? list.filter((item) => typeof item === "string") : [];
  } catch {
    return [];
  }
}
