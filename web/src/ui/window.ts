// Which rows of a long list are in view.

export interface Window {
  from: number;
  to: number;
  /** Height of the rows before and after, in pixels. */
  before: number;
  after: number;
}

const extraRows = 8;

export function windowOf(count: number, rowHeight: number, scrolled: number, height: number): Window {
  const from = Math.max(0, Math.min(count, Math.floor(scrolled / rowHeight) - extraRows));
  const to = Math.max(from, Math.min(count, Math.ceil((scrolled + height) / rowHeight) + extraRows));
  return { from, to, before: from * rowHeight, after: (count - to) * rowHeight };
}
