// Finding names: by parts of them, and the closest ones to a wrong name.

/** How well a name fits what was typed: null for not at all, smaller is better. Every word must occur. */
export function rank(query: string, name: string, text = ""): number | null {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const lowName = name.toLowerCase();
  const lowText = text.toLowerCase();
  let total = 0;
  for (const word of words) {
    const at = lowName.indexOf(word);
    if (at === 0) total += lowName === word ? 0 : 1;
    else if (at > 0) total += /[^a-z0-9]/.test(lowName[at - 1] ?? "") ? 2 : 3;
    else if (lowText.includes(word)) total += 6;
    else return null;
  }
  return total;
}

/** At most `limit` of the items that fit, best first; equal ones keep their order. */
export function search<T>(query: string, items: readonly T[], name: (item: T) => string, limit: number, text?: (item: T) => string): T[] {
  const found: { item: T; score: number }[] = [];
  for (const item of items) {
    const score = rank(query, name(item), text?.(item));
    if (score !== null) found.push({ item, score });
  }
  return found.sort((a, b) => a.score - b.score).slice(0, limit).map(({ item }) => item);
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** The names that were probably meant, closest first. */
export function closest(wrong: string, names: readonly string[], limit = 3): string[] {
  const low = wrong.slice(0, 64).toLowerCase();
  return names
    .map((name) => ({ name, far: distance(low, name.toLowerCase()) - (name.toLowerCase().includes(low) ? 3 : 0) }))
    .filter(({ name, far }) => far <= Math.max(2, Math.min(low.length, name.length) / 2))
    .sort((a, b) => a.far - b.far)
    .slice(0, limit)
    .map(({ name }) => name);
}
