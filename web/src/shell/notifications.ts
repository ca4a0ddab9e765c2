// Notifications of the browser about approvals, from each tab of the page that is not in view.

import { signal } from "@preact/signals";
import { plain, shorten } from "../base/text.ts";
import { store, stored } from "../base/storage.ts";
import { pending } from "../data/approvals.ts";
import { texts } from "../i18n/index.ts";
import { onEvent } from "../live/client.ts";
import { address, go } from "../ui/router.ts";

const isAllowed = (): boolean => typeof Notification !== "undefined" && Notification.permission === "granted";

export const notifications = signal(stored("notifications") === "on" && isAllowed());

/** Turns them on or off; false if the browser forbids them. */
export async function chooseNotifications(on: boolean): Promise<boolean> {
  const allowed = !on || isAllowed() || (await Notification.requestPermission()) === "granted";
  notifications.value = on && allowed;
  store("notifications", notifications.value ? "on" : null);
  return allowed;
}

export function startNotifications(): void {
  onEvent((event) => {
    if (event.event !== "approval.requested" || !notifications.peek() || !document.hidden) return;
    const id = event.approvalId;
    if (typeof id !== "string") return;
    // The tag lets the notifications of several tabs replace each other.
    const notification = new Notification(texts.peek().approvals.notification, { body: plain(shorten(event.toolName ?? "", 100)), tag: id });
    notification.onclick = () => {
      window.focus();
      go(address.approval(id));
    };
  });
  // The count in the title needs the list, whatever page is shown.
  pending.use();
}
