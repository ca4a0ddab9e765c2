// Lines that differ between two texts.

export interface DiffLine {
  kind: "same" | "removed" | "added";
  text: string;
}

/** Beyond this many pairs of lines the middle is shown as replaced, so that a huge text cannot hang the page. */
const maxPairs = 4_000_000;

export function diffLines(before: string, after: string): DiffLine[] {
  // A text without characters has no lines.
  const [a, b] = [before ? before.split("\n") : [], after ? after.split("\n") : []];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: "same", text }));
  const middle = diffMiddle(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...same(a.slice(0, start)), ...middle, ...same(a.slice(a.length - end))];
}

/** For each line, where it begins to differ from the line that stands in its place in the other text. */
export function firstDifferences(lines: readonly DiffLine[]): number[] {
  const result = lines.map(() => 0);
  for (let start = 0; start < lines.length; start++) {
    const removed: number[] = [];
    const added: number[] = [];
    for (let line = lines[start]; line && line.kind !== "same"; line = lines[++start]) (line.kind === "removed" ? removed : added).push(start);
    for (let pair = 0; pair < Math.min(removed.length, added.length); pair++) {
      const [before, after] = [removed[pair] ?? 0, added[pair] ?? 0];
      result[before] = result[after] = commonLength(lines[before]?.text ?? "", lines[after]?.text ?? "");
    }
  }
  return result;
}

function commonLength(one: string, other: string): number {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at++;
  return at;
}

function diffMiddle(a: string[], b: string[]): DiffLine[] {
  const all = (kind: DiffLine["kind"], lines: string[]): DiffLine[] => lines.map((text) => ({ kind, text }));
  if (a.length * b.length > maxPairs) return [...all("removed", a), ...all("added", b)];
  // Length of the longest common subsequence of the ends a[i..] and b[j..].
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i] ?? "" });
      i++;
      j++;
    } else if (at(i + 1, j) >= at(i, j + 1)) lines.push({ kind: "removed", text: a[i++] ?? "" });
    else lines.push({ kind: "added", text: b[j++] ?? "" });
  }
  return [...lines, ...all("removed", a.slice(i)), ...all("added", b.slice(j))];
}
