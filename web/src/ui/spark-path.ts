// The line of a spark as a path of SVG.

/** The line as a path in a box of `width` and `height`; null values are gaps. */
export function sparkPath(values: readonly (number | null)[], slots: number, width: number, height: number): string {
  const highest = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const first = slots - values.length;
  let isDown = false;
  return values
    .map((value, index) => {
      if (value === null) {
        isDown = false;
        return "";
      }
      const x = (((first + index) / Math.max(1, slots - 1)) * width).toFixed(1);
      const y = (height - 1 - (value / highest) * (height - 2)).toFixed(1);
      const step = `${isDown ? "L" : "M"}${x} ${y}`;
      isDown = true;
      return step;
    })
    .join("");
}
