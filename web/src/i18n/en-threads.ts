// English texts of threads, runs and the chat.

export const threads = {
  title: "Threads",
};

export const runs = {
  one: "Run",
};
