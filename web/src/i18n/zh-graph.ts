// Chinese texts of the graph of dependencies.

export const graph = {
  title: "依赖图",
};
