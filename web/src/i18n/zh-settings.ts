// Chinese texts of the settings.

export const settings = {
  title: "设置",
};
