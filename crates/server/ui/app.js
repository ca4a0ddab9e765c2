// A placeholder: the build of the folder `web` replaces it.
"use strict";
const app = document.getElementById("app");
fetch(app.dataset.base + "/ui/session").then((response) => response.json()).then((session) => {
  app.textContent = `Toolhub ${session.version}: the dashboard is not built yet.`;
});
