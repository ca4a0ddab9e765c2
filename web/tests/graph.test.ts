import assert from "node:assert/strict";
import { test } from "node:test";
import { type Edge, groupsOf, neighbourhood } from "../src/data/graph.ts";
import { boxHeight, layOut } from "../src/pages/graph/layout.ts";

const edge = (from: string, to: string, group = 0): Edge => ({ from, to, group, needs: "all" });
const lay = (names: string, edges: Edge[], viewWidth = 2000) => layOut(names.split(" "), edges, () => 100, viewWidth);

test("a tool stands right of all that it waits for, however long the way", () => {
  const { boxes } = lay("a b c d", [edge("a", "b"), edge("b", "c"), edge("a", "d"), edge("c", "d")]);
  const x = (name: string) => boxes.get(name)!.x;
  assert.ok(x("a") < x("b") && x("b") < x("c") && x("c") < x("d"));
});

test("lines that can be drawn without crossing do not cross, and nothing overlaps", () => {
  const { boxes, bends, height } = lay("a b c x y z", [edge("a", "z"), edge("b", "y"), edge("c", "x"), edge("a", "y"), edge("b", "x")]);
  const order = (names: string) => names.split(" ").sort((one, other) => boxes.get(one)!.y - boxes.get(other)!.y).join("");
  assert.ok(["abc zyx", "cba xyz"].includes(`${order("a b c")} ${order("x y z")}`));
  const all = [...boxes.values()];
  for (const one of all) for (const other of all) assert.ok(one === other || one.x !== other.x || Math.abs(one.y - other.y) >= boxHeight);
  assert.ok(all.every(({ y }) => y >= 0 && y + boxHeight <= height));
  assert.ok(bends.every((bend) => bend.length === 0));
});

test("a line over several layers has a place in each of them", () => {
  const { boxes, bends } = lay("a b c", [edge("a", "b"), edge("b", "c"), edge("a", "c")]);
  assert.deepEqual(bends.map((bend) => bend.length), [0, 0, 2]);
  assert.equal(bends[2]![0]!.x, boxes.get("b")!.x);
  assert.ok(bends[2]![0]!.y < boxes.get("b")!.y || bends[2]![0]!.y > boxes.get("b")!.y + boxHeight);
});

test("components stand side by side as far as the view reaches, then below", () => {
  const edges = [edge("a", "b"), edge("c", "d"), edge("e", "f")];
  const wide = lay("a b c d e f", edges, 600);
  assert.equal(wide.boxes.get("a")!.y, wide.boxes.get("c")!.y);
  assert.ok(wide.boxes.get("c")!.x > wide.boxes.get("b")!.x);
  assert.ok(wide.boxes.get("e")!.y > wide.boxes.get("a")!.y);
  assert.ok(wide.width <= 600);
});

test("a circle, which the server refuses, still ends", () => {
  assert.equal(lay("a b", [edge("a", "b"), edge("b", "a")]).boxes.size, 2);
});

test("the neighbourhood has all before a tool and all after it, but not what others need", () => {
  const edges = [edge("a", "b"), edge("b", "c"), edge("c", "d"), edge("x", "d"), edge("a", "y")];
  assert.deepEqual([...neighbourhood(edges, "c")].sort(), ["a", "b", "c", "d"]);
  assert.deepEqual([...neighbourhood(edges, "alone")], ["alone"]);
  assert.equal(neighbourhood(Array.from({ length: 9 }, (_, index) => edge("a", `t${index}`)), "a", 5).size, 5);
});

test("dependencies are grouped as the config has them", () => {
  assert.deepEqual(groupsOf([edge("a", "z", 1), edge("b", "z", 0), edge("c", "z", 1)]).map((group) => group.map(({ from }) => from).join("")), ["b", "ac"]);
});
