// English texts of contexts of tool state.

export const contexts = {
  title: "State",
};
