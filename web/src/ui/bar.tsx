// How many of a whole are of which kind, as a bar. The numbers stand beside it as text.

import { useEffect, useRef } from "preact/hooks";

export interface Part {
  name: string;
  count: number;
}

export function Bar({ parts }: { parts: readonly Part[] }) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const bars = element.current?.children ?? [];
    parts.forEach(({ count }, index) => ((bars[index] as HTMLElement).style.flexGrow = String(count)));
  });
  return (
    <div ref={element} class="bar" aria-hidden="true">
      {parts.map(({ name, count }) => (
        <div key={name} class={count > 0 ? `part ${name}` : "part none"} />
      ))}
    </div>
  );
}
