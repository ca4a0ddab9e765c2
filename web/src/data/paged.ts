// A long list of which as many pages are kept up to date as were asked for.
//
// In: how one part of the list is read. Out: the rows from the first one on. Rows behind the most that are read again
// each time stay as they were, and the list says since when.

import type { Page } from "../api/types.ts";
import { serverNow } from "../base/clock.ts";
import { Resource, type ResourceOptions } from "./resource.ts";

const pageSize = 100;
/** Rows beyond this are not read again: with them each event would cost many requests. */
const maxLive = 2_000;
/** The most that the server gives at once. */
const maxLimit = 500;

type Read<T> = (limit: number, cursor: string | null | undefined) => Promise<Page<T>>;

export interface Rows<T> extends Page<T> {
  /** How many rows were read, and when those behind them held. */
  live: number;
  restAt?: number;
}

export class PagedResource<T extends { id: string }> extends Resource<Rows<T>> {
  private readonly readPart: Read<T>;
  private wanted = pageSize;
  private rest: { items: T[]; at: number; next: string | null | undefined } | null = null;

  constructor(readPart: Read<T>, options: ResourceOptions) {
    super(() => this.readRows(), options);
    this.readPart = readPart;
  }

  /** Reads older rows too, until some of them fit or a few pages were read. */
  async more(fits: (item: T) => boolean): Promise<void> {
    const begun = this.data.peek()?.value;
    for (let page = 0; page < 5; page++) {
      const before = this.data.peek()?.value;
      if (!begun || !before?.nextCursor || before.items.slice(begun.items.length).some(fits)) return;
      // A part may have been more than was asked for.
      if (this.wanted < maxLive) this.wanted = Math.min(maxLive, Math.max(this.wanted, before.items.length) + pageSize);
      else await this.readRest(before);
      await this.read();
      if (this.error.peek()) throw this.error.peek();
    }
  }

  private async readRows(): Promise<Rows<T>> {
    const items = new Map<string, T>();
    let next: string | null | undefined;
    let left = this.wanted;
    do {
      const page = await this.readPart(Math.min(left, maxLimit), next);
      left -= page.items.length;
      next = page.nextCursor;
      // A row that became the first one meanwhile comes twice.
      for (const item of page.items) if (!items.has(item.id)) items.set(item.id, item);
    } while (next && left > 0);
    const live = [...items.values()];
    if (!this.rest) return { items: live, nextCursor: next ?? null, live: live.length };
    // Newer rows push the last ones behind those that are read.
    const before = this.data.peek()?.value.items ?? [];
    const last = before.findIndex(({ id }) => id === live.at(-1)?.id);
    const pushed = last < 0 ? [] : before.slice(last + 1);
    const known = new Set(items.keys());
    const behind = [...pushed, ...this.rest.items].filter(({ id }) => !known.has(id) && known.add(id));
    return { items: [...live, ...behind], nextCursor: this.rest.next ?? null, live: live.length, restAt: this.rest.at };
  }

  private async readRest({ nextCursor }: Page<T>): Promise<void> {
    const page = await this.readPart(pageSize, nextCursor);
    this.rest = { items: [...(this.rest?.items ?? []), ...page.items], at: this.rest?.at ?? serverNow(), next: page.nextCursor };
  }
}
