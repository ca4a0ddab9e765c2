// Chinese texts of contexts of tool state.

export const contexts = {
  title: "状态数据",
};
