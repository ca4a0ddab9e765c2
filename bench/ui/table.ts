// Results as a Markdown table.

export interface Row {
  metric: string;
  measured: string;
  target?: string;
  /** Undefined: no target. */
  isMet?: boolean;
}

export function printTable(rows: readonly Row[]): void {
  console.log("| metric | measured | target |\n|---|---|---|");
  for (const { metric, measured, target, isMet } of rows) console.log(`| ${metric} | ${measured} | ${target ? `${target}${isMet ? "" : ", MISSED"}` : ""} |`);
}

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** The value that `share` of the numbers do not exceed. */
export function quantile(numbers: readonly number[], share: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
