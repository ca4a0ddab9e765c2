// Where the tools of a graph stand: in layers from left to right, each behind all that it waits for.
//
// In: names with their widths, and edges. Out: a box per name and the points that each line passes. Components, which no
// line connects, stand side by side. Knows nothing of statuses, so that a changed status moves nothing.

export interface Line {
  from: string;
  to: string;
}

export interface Box {
  x: number;
  y: number;
  width: number;
}

export interface Layout {
  boxes: Map<string, Box>;
  /** Of each line, by its index: where it is in the middle of each layer between its ends. */
  bends: { x: number; y: number }[][];
  width: number;
  height: number;
}

export const boxHeight = 44;
const [rowGap, layerGap, componentGap, bendHeight] = [10, 56, 28, 10];

/** A place in a layer: a tool, or where a line passes. */
interface Place {
  name: string | null;
  layer: number;
  before: Place[];
  after: Place[];
  y: number;
  /** Its place in the order of its layer. */
  rank: number;
}

const middle = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
const heightOf = (place: Place): number => (place.name === null ? bendHeight : boxHeight);

export function layOut(names: readonly string[], lines: readonly Line[], widthOf: (name: string) => number, viewWidth: number): Layout {
  const places = new Map<string, Place>(names.map((name) => [name, { name, layer: 0, before: [], after: [], y: 0, rank: 0 }]));
  const ends = lines.map(({ from, to }) => [places.get(from)!, places.get(to)!] as const);
  setLayers(places, ends);
  const passed = ends.map(([from, to]) => connect(from, to));
  const parts = components([...places.values()]).map((all) => arrange(all, widthOf));
  const { positions, width, height } = pack(parts, viewWidth);
  const boxes = new Map<string, Box>();
  const layers = new Map<Place, Box>();
  parts.forEach((part, index) => {
    const at = positions[index]!;
    for (const place of part.places) {
      const box = { x: at.x + part.starts[place.layer]!, y: at.y + place.y, width: place.name === null ? part.widths[place.layer]! : widthOf(place.name) };
      layers.set(place, box);
      if (place.name !== null) boxes.set(place.name, box);
    }
  });
  const bends = passed.map((all) => all.map((place) => layers.get(place)!).flatMap(({ x, y, width }) => [{ x, y: y + bendHeight / 2 }, { x: x + width, y: y + bendHeight / 2 }]));
  return { boxes, bends, width, height };
}

/** The longest way from a tool without dependencies. A circle, which the server refuses, would end after as many rounds as tools. */
function setLayers(places: Map<string, Place>, ends: readonly (readonly [Place, Place])[]): void {
  for (let round = 0, isStable = false; !isStable && round < places.size; round++) {
    isStable = true;
    for (const [from, to] of ends) {
      if (to.layer > from.layer) continue;
      to.layer = from.layer + 1;
      isStable = false;
    }
  }
}

/** Connects two tools by a place in each layer between them. */
function connect(from: Place, to: Place): Place[] {
  const passed: Place[] = [];
  let last = from;
  for (let layer = from.layer + 1; layer < to.layer; layer++) {
    const place: Place = { name: null, layer, before: [last], after: [], y: 0, rank: 0 };
    last.after.push(place);
    passed.push((last = place));
  }
  last.after.push(to);
  to.before.push(last);
  return passed;
}

/** Places that are connected with each other; the largest component first. */
function components(places: readonly Place[]): Place[][] {
  const seen = new Set<Place>();
  const found: Place[][] = [];
  for (const start of places) {
    if (seen.has(start)) continue;
    seen.add(start);
    const all = [start];
    for (const place of all) {
      for (const other of [...place.before, ...place.after]) if (!seen.has(other)) all.push(other), seen.add(other);
    }
    found.push(all);
  }
  return found.sort((a, b) => b.length - a.length);
}

interface Part {
  places: Place[];
  /** Where each layer begins, and how wide it is. */
  starts: number[];
  widths: number[];
  width: number;
  height: number;
}

function arrange(all: Place[], widthOf: (name: string) => number): Part {
  const layers: Place[][] = Array.from({ length: 1 + Math.max(...all.map(({ layer }) => layer)) }, () => []);
  for (const place of all) layers[place.layer]!.push(place);
  const renumber = (layer: Place[]) => layer.forEach((place, rank) => (place.rank = rank));
  layers.forEach(renumber);
  const sort = (layer: Place[], side: "before" | "after") => {
    const wish = new Map(layer.map((place) => [place, place[side].length ? middle(place[side].map(({ rank }) => rank)) : place.rank]));
    renumber(layer.sort((a, b) => wish.get(a)! - wish.get(b)!));
  };
  for (let sweep = 0; sweep < 4; sweep++) {
    layers.forEach((layer) => sort(layer, "before"));
    [...layers].reverse().forEach((layer) => sort(layer, "after"));
  }
  // Each stands as near as it can to the middle of its neighbours. Those that would overlap are shifted together, as a block.
  const stack = (layer: Place[], side: "before" | "after") => {
    let offset = 0;
    const blocks: { wishes: number[]; places: [Place, number][] }[] = [];
    for (const place of layer) {
      const near = place[side];
      const wished = near.length ? middle(near.map((other) => other.y + heightOf(other) / 2)) - heightOf(place) / 2 : place.y;
      const block = { wishes: [wished - offset], places: [[place, offset] as [Place, number]] };
      offset += heightOf(place) + rowGap;
      for (let above = blocks.at(-1); above && middle(above.wishes) > middle(block.wishes); above = blocks.at(-1)) {
        block.wishes.unshift(...above.wishes);
        block.places.unshift(...above.places);
        blocks.pop();
      }
      blocks.push(block);
    }
    for (const { wishes, places } of blocks) for (const [place, from] of places) place.y = middle(wishes) + from;
  };
  for (const side of ["before", "after", "before"] as const) (side === "before" ? layers : [...layers].reverse()).forEach((layer) => stack(layer, side));
  const top = all.reduce((least, { y }) => Math.min(least, y), Infinity);
  for (const place of all) place.y -= top;
  const widths = layers.map((layer) => Math.max(0, ...layer.map(({ name }) => (name === null ? 0 : widthOf(name)))));
  const starts = widths.map((_, index) => widths.slice(0, index).reduce((sum, width) => sum + width + layerGap, 0));
  const height = all.reduce((most, place) => Math.max(most, place.y + heightOf(place)), 0);
  return { places: all, starts, widths, width: starts.at(-1)! + widths.at(-1)!, height };
}

/** Puts components side by side into rows that fit the view; one that is wider makes the row wider. */
function pack(parts: readonly Part[], viewWidth: number): { positions: { x: number; y: number }[]; width: number; height: number } {
  let [x, y, rowHeight, width] = [0, 0, 0, 0];
  const positions = parts.map((part) => {
    if (x > 0 && x + part.width > viewWidth) [x, y, rowHeight] = [0, y + rowHeight + componentGap, 0];
    const at = { x, y };
    x += part.width + componentGap;
    width = Math.max(width, x - componentGap);
    rowHeight = Math.max(rowHeight, part.height);
    return at;
  });
  return { positions, width, height: y + rowHeight };
}
