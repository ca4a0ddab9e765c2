// Parts of a page that are shown one at a time. Each has an address.

import type { ComponentChildren } from "preact";
import { useCurrentInView } from "./current-in-view.ts";

export interface Tab {
  name: string;
  title: ComponentChildren;
  href: string;
}

export function Tabs({ label, tabs, current }: { label: string; tabs: readonly Tab[]; current: string }) {
  const row = useCurrentInView<HTMLElement>(current);
  return (
    <nav ref={row} class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <a key={tab.name} href={tab.href} aria-current={tab.name === current ? "page" : undefined}>
          {tab.title}
        </a>
      ))}
    </nav>
  );
}
