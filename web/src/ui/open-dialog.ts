// Which of the dialogs of the frame is open. Pages may open one, too.

import { signal } from "@preact/signals";

export const openDialog = signal<"none" | "palette" | "help" | "preferences">("none");
