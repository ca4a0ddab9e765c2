// Settings that were changed by a reload and take effect only after a restart of the server.

import { computed } from "@preact/signals";
import { store } from "../base/storage.ts";
import { info } from "./facts.ts";

/** What waits in this process. Up to date where `info` is. */
export const pendingRestart = computed<readonly string[]>(() => info.data.value?.value.restartPending ?? []);

/** Forgets what earlier versions of the page noted. To be called once. */
export const watchRestarts = (): void => store("restart", null);
