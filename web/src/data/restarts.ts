// Settings that were changed by a reload and take effect only after a restart of the server.

import { computed } from "@preact/signals";
import { info } from "./facts.ts";

/** What waits in this process. Up to date where `info` is. */
export const pendingRestart = computed<readonly string[]>(() => info.data.value?.value.restartPending ?? []);
