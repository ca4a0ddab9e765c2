// English texts of the graph of dependencies.

export const graph = {
  noneText: "Until `clock` has succeeded in a thread, `report` is not offered there:",
  choose: "Choose a tool",
  whole: "Whole graph",
  counts: (shown: number, all: number) => `${shown} of ${all} tools`,
  list: "As a list",
  tooMany: (count: number, most: number) => `${count} tools have dependencies, and ${most} can be drawn. Choose one to see its neighbours.`,
  notRegistered: "not registered",
  zoom: ["Smaller", "Larger"] as readonly [string, string],
};
