// Starts the page.

import { render } from "preact";
import { startClock } from "./base/clock.ts";
import { loadSession, watchSession } from "./data/session.ts";
import { watchTicks } from "./data/ticks.ts";
import { watchStatuses } from "./data/tools.ts";
import { startNotifications } from "./shell/notifications.ts";
import { startTheme } from "./shell/preferences.tsx";
import { App } from "./shell/shell.tsx";
import { startKeyboard } from "./ui/keyboard.ts";
import { startRouter } from "./ui/router.ts";

startTheme();
startClock();
startRouter();
startKeyboard();
watchSession();
watchStatuses();
watchTicks();
void loadSession().then(startNotifications);

const root = document.getElementById("app");
if (root) render(<App />, root);
// The script was understood.
document.querySelector(".unsupported")?.remove();
