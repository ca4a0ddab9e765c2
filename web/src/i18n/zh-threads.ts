// Chinese texts of threads, runs and the chat.

export const threads = {
  title: "会话",
};

export const runs = {
  one: "运行",
};
