// Lines over time, drawn by uPlot on a canvas. The list below them says the same in words and numbers: what each line is,
// and its value at the cursor, or else the last one.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clockTime, timeZone } from "../base/format.ts";
import { language } from "../i18n/index.ts";

export interface ChartLine {
  name: string;
  /** A variable of the style sheet. */
  colour: "good" | "bad" | "warn" | "info" | "accent" | "off";
  /** Lines differ by their dashes too, not by colour alone. */
  dash: readonly number[];
  values: readonly (number | null)[];
}

interface Props {
  title: string;
  /** Says the main numbers to a screen reader. */
  summary: string;
  at: readonly number[];
  lines: readonly ChartLine[];
  format: (value: number) => string;
}

const height = 150;

export function Chart({ title, summary, at, lines, format }: Props) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [index, setIndex] = useState<number | null>(null);
  const formatNow = useRef(format);
  formatNow.current = format;
  const shape = JSON.stringify([lines.map(({ colour, dash }) => [colour, dash]), language.value, timeZone.value]);
  useEffect(() => {
    const host = element.current;
    if (!host) return;
    const chart = new uPlot(optionsOf(host, lines, (value) => formatNow.current(value), setIndex), dataOf(at, lines), host);
    plot.current = chart;
    const size = new ResizeObserver(() => chart.setSize({ width: host.clientWidth, height }));
    size.observe(host);
    // The colours of the other theme.
    const redraw = () => chart.redraw(false);
    const theme = new MutationObserver(redraw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => {
      size.disconnect();
      theme.disconnect();
      scheme.removeEventListener("change", redraw);
      chart.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(dataOf(at, lines)), [at, lines]);
  const shown = index !== null && index < at.length ? index : null;
  const valueOf = ({ values }: ChartLine): number | null => values.at(shown ?? -1) ?? null;
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        {shown !== null && <time class="quiet">{clockTime(at[shown] ?? 0, language.value)}</time>}
      </figcaption>
      <div ref={element} class="plot" role="img" aria-label={summary} />
      <ul class="legend">
        {lines.map((line) => {
          const value = valueOf(line);
          return (
            <li key={line.name}>
              <svg class={`swatch ${line.colour}`} viewBox="0 0 24 6" aria-hidden="true">
                <path d="M0 3H24" stroke-dasharray={line.dash.join(" ")} />
              </svg>
              {line.name} <span class="num" data-raw>{value === null ? "–" : format(value)}</span>
            </li>
          );
        })}
      </ul>
    </figure>
  );
}

const dataOf = (at: readonly number[], lines: readonly ChartLine[]): uPlot.AlignedData => [at as number[], ...lines.map(({ values }) => values as number[])];

/** The colour of a variable as it is now: a canvas knows no variables. */
function colourOf(host: HTMLElement, name: string): string {
  host.style.color = `var(--${name})`;
  return getComputedStyle(host).color;
}

/** A value between gaps is no line, so it is drawn as a point. */
function alone(plot: uPlot, series: number): number[] {
  const values = plot.data[series] ?? [];
  const points: number[] = [];
  for (let at = 0; at < values.length; at++) {
    if (values[at] != null && values[at - 1] == null && values[at + 1] == null) points.push(at);
  }
  return points;
}

function optionsOf(host: HTMLElement, lines: readonly ChartLine[], format: (value: number) => string, point: (index: number | null) => void): uPlot.Options {
  const zone = timeZone.peek();
  const axis = { stroke: () => colourOf(host, "quiet"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  const grid = { stroke: () => colourOf(host, "line"), width: 1 };
  return {
    width: host.clientWidth,
    height,
    ms: 1,
    ...(zone && { tzDate: (time: number) => uPlot.tzDate(new Date(time), zone) }),
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    // Without this a line of zeros would stand in the middle of the chart.
    scales: { y: { range: (_plot, _low, highest) => [0, highest > 0 ? highest * 1.08 : 1] } },
    series: [{}, ...lines.map(({ colour, dash }) => ({ stroke: () => colourOf(host, colour), width: 1.5, dash: [...dash], points: { show: true, size: 4, filter: alone } }))],
    axes: [
      { ...axis, grid: { show: false }, space: 64, size: 26, values: (_plot, times) => times.map((time) => clockTime(time, language.peek()).slice(0, 5)) },
      { ...axis, grid, size: 56, space: 30, values: (_plot, values) => values.map(format) },
    ],
    hooks: { setCursor: [(chart) => point(chart.cursor.idx ?? null)] },
  };
}
