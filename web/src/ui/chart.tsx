// Lines over time. The list below them says the same in words and numbers: what each line is, and its value at the cursor,
// or else the last one.

import { useEffect, useRef, useState } from "preact/hooks";
import { timeTicks, valueTicks } from "../base/axis.ts";
import { clockTime, timeOfDay } from "../base/format.ts";
import { linePath, pointsPath } from "../base/line-path.ts";
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
  /** Times at equal distances. */
  at: readonly number[];
  lines: readonly ChartLine[];
  format: (value: number) => string;
}

export function Chart({ title, summary, at, lines, format }: Props) {
  const [index, setIndex] = useState<number | null>(null);
  const shown = index !== null && index < at.length ? index : null;
  const valueOf = ({ values }: ChartLine): number | null => values.at(shown ?? -1) ?? null;
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        {shown !== null && <time class="quiet">{clockTime(at[shown] ?? 0, language.value)}</time>}
      </figcaption>
      <Plot summary={summary} at={at} lines={lines} format={format} shown={shown} show={setIndex} />
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

const [height, left, bottom] = [150, 56, 22];

interface PlotProps extends Omit<Props, "title"> {
  shown: number | null;
  show: (index: number | null) => void;
}

function Plot({ summary, at, lines, format, shown, show }: PlotProps) {
  const element = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(320);
  useEffect(() => {
    const size = new ResizeObserver(([entry]) => setWidth(entry!.contentRect.width));
    size.observe(element.current!);
    return () => size.disconnect();
  }, []);
  const [from, to] = [at[0] ?? 0, at.at(-1) ?? 0];
  const highest = Math.max(...lines.flatMap(({ values }) => values.map((value) => value ?? 0))) * 1.08 || 1;
  const last = Math.max(1, at.length - 1);
  const x = (index: number) => left + (index / last) * (width - left - 4);
  const y = (value: number) => height - bottom - (value / highest) * (height - bottom - 4);
  const point = (event: PointerEvent) => {
    const place = (event.clientX - element.current!.getBoundingClientRect().left - left) / (width - left - 4);
    show(Math.max(0, Math.min(last, Math.round(place * last))));
  };
  return (
    <div ref={element} class="plot" role="img" aria-label={summary} onPointerMove={point} onPointerLeave={() => show(null)}>
      <svg viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
        {valueTicks(highest, 4).map((value) => (
          <g key={value}>
            <path class="grid" d={`M${left} ${y(value)}H${width}`} />
            <text x={left - 6} y={y(value) + 4} text-anchor="end" data-raw>
              {format(value)}
            </text>
          </g>
        ))}
        {timeTicks(from, to, (width - left) / 64, timeOfDay(to, language.value)).map((time) => (
          <text key={time} x={x(((time - from) / (to - from)) * last)} y={height - 6} text-anchor="middle" data-raw>
            {clockTime(time, language.value).slice(0, 5)}
          </text>
        ))}
        {lines.map(({ name, colour, dash, values }) => (
          <g key={name} class={`line ${colour}`}>
            <path d={linePath(values, x, y)} stroke-dasharray={dash.join(" ")} />
            <path class="points" d={pointsPath(values, x, y)} />
          </g>
        ))}
        {shown !== null && <path class="cursor" d={`M${x(shown)} 4V${height - bottom}`} />}
      </svg>
    </div>
  );
}
