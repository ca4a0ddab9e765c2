// Where the marks of a chart's axes stand.

/** Round values from 0 up to the highest one, about `count` of them: 0, 20, 40 … */
export function valueTicks(highest: number, count: number): number[] {
  const rough = highest / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, index) => index * step);
}

const minute = 60_000;
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * minute);

/** Round times of day in a span, at most `count`. `sinceMidnight` is the time of day at its end, in the chosen time zone. */
export function timeTicks(from: number, to: number, count: number, sinceMidnight: number): number[] {
  const step = steps.find((length) => (to - from) / length <= count) ?? 1440 * minute;
  const ticks: number[] = [];
  for (let time = to - (sinceMidnight % step); time >= from; time -= step) ticks.unshift(time);
  return ticks;
}
