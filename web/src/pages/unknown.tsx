// An address that names nothing: what was probably meant, and the way back.

import type { ComponentChildren } from "preact";
import { closest } from "../base/match.ts";
import { texts } from "../i18n/index.ts";
import { Code } from "../ui/raw.tsx";
import { address, route } from "../ui/router.ts";
import { sections } from "../ui/sections.ts";

export function Unknown() {
  const t = texts.value;
  const { path } = route.value;
  const first = `/${path.split("/").filter(Boolean)[0] ?? ""}`;
  // The last part of a section's address; the overview has none.
  const words = new Map(sections.map((section) => [section.name === "overview" ? "/overview" : `/${section.href().split("/").pop()}`, section]));
  const near = closest(first, [...words.keys()]).map((word) => words.get(word)!);
  return (
    <NotFound title={t.unknown.title}>
      <p>
        {t.unknown.page} <Code text={path} />
      </p>
      <Suggestions links={near.map(({ name, href }) => ({ href: href(), name: t.nav[name], isRaw: false }))} />
    </NotFound>
  );
}

interface Link {
  href: string;
  name: string;
  isRaw: boolean;
}

export function Suggestions({ links }: { links: readonly Link[] }) {
  if (links.length === 0) return null;
  return (
    <p>
      {texts.value.unknown.meant}{" "}
      {links.map(({ href, name, isRaw }, index) => (
        <span key={href}>
          {index > 0 && ", "}
          <a href={href}>{isRaw ? <Code text={name} /> : name}</a>
        </span>
      ))}
    </p>
  );
}

export function NotFound({ title, back, children }: { title: string; back?: Link; children: ComponentChildren }) {
  const t = texts.value;
  const way = back ?? { href: address.overview(), name: t.nav.overview, isRaw: false };
  return (
    <section class="page not-found">
      <h1>{title}</h1>
      {children}
      <p>
        <a href={way.href}>{t.unknown.back(way.name)}</a>
      </p>
    </section>
  );
}
