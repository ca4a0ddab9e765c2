// English texts of the graph of dependencies.

export const graph = {
  title: "Graph",
};
