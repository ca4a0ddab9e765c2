// A line through values as a path of SVG.

type Values = readonly (number | null)[];

/** The line; null values are gaps. */
export function linePath(values: Values, x: (index: number) => number, y: (value: number) => number): string {
  let isDown = false;
  return values
    .map((value, index) => {
      const step = value === null ? "" : `${isDown ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = value !== null;
      return step;
    })
    .join("");
}

/** The values between two gaps, which are no line: each as a line without length, which a round end makes a point. */
export const pointsPath = (values: Values, x: (index: number) => number, y: (value: number) => number): string =>
  values.map((value, index) => (value !== null && values[index - 1] == null && values[index + 1] == null ? `M${x(index).toFixed(1)} ${y(value).toFixed(1)}h0` : "")).join("");

/** The line in a box of `width` and `height`, from the last value on the right. */
export function sparkPath(values: Values, slots: number, width: number, height: number): string {
  const highest = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const first = slots - values.length;
  return linePath(values, (index) => ((first + index) / Math.max(1, slots - 1)) * width, (value) => height - 1 - (value / highest) * (height - 2));
}
