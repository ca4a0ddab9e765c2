// English texts of the settings.

export const settings = {
  title: "Settings",
};
