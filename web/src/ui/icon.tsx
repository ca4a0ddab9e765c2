// Small pictures. They repeat what a word beside them says, so they are hidden from screen readers.

const shapes = {
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2.2l6.2 11.3H1.8zM8 6.4v3.2M8 11.5v.3",
  wrench: "M10.8 2.3a3.4 3.4 0 0 0-3.6 4.6l-5 5 1.9 1.9 5-5a3.4 3.4 0 0 0 4.6-3.6l-2 2-1.9-.6-.6-1.9z",
  off: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M3.8 3.8l8.4 8.4",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 4.8V8l2.3 1.5",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.4 10.4l3.3 3.3",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  settings: "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  overview: "M2.5 8.5h3l2-5 2.5 9 1.5-4h2",
  tools: "M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z",
  calls: "M2.5 4h7M2.5 8h11M2.5 12h5M12 4h1.5M10 12h3.5",
  threads: "M2.5 3.500h11v7h-6l-3 2.500v-2.500h-2z",
  state: "M3 4.500c0-2.700 10-2.700 10 0v7c0 2.700-10 2.700-10 0zM3 4.500c0 2.700 10 2.700 10 0M3 8c0 2.700 10 2.700 10 0",
  graph: "M2.500 6.500h3v3h-3zM10.500 2.500h3v3h-3zM10.500 10.500h3v3h-3zM5.500 7.500l5-3M5.500 8.500l5 3",
  servers: "M6 2.500v3M10 2.500v3M4 5.500h8V8a4 4 0 0 1-8 0zM8 12v2",
  nodes: "M2.500 3h11v4h-11zM2.500 9h11v4h-11zM5 5v.1M5 11v.1",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  approvals: "M8 2l5 2v4c0 3-2.2 5-5 6-2.800-1-5-3-5-6V4zM5.700 8l1.700 1.700L10.500 6.500",
  question: "M5.8 6a2.2 2.2 0 1 1 3.200 2c-.7.4-1 .8-1 1.500M8 11.700v.3M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 7.200v3.600M8 5v.3",
  person: "M8 8.200a2.700 2.700 0 1 0 0-5.400 2.700 2.700 0 0 0 0 5.400M2.800 13.700c.5-2.600 2.500-4 5.200-4s4.700 1.400 5.200 4",
  bot: "M3.500 6h9v6.500h-9zM8 6V3M6.200 9v.5M9.800 9v.5",
  lost: "M2 6.500a9 9 0 0 1 12 0M4.500 9.200a5.500 5.500 0 0 1 7 0M8 12.300v.2M3 3l10 10",
} as const;

export type IconName = keyof typeof shapes;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={shapes[name]} />
    </svg>
  );
}
