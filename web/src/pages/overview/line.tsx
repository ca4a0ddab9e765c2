// One line of what needs attention: a picture, what it is, details, and what can be done.

import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "../../ui/icon.tsx";

interface Props {
  icon: IconName;
  tone: "bad" | "warn" | "info";
  title: ComponentChildren;
  detail?: ComponentChildren;
  actions?: ComponentChildren;
}

export const Line = ({ icon, tone, title, detail, actions }: Props) => (
  <li class="line">
    <span class={`line-icon ${tone}`}>
      <Icon name={icon} />
    </span>
    <div class="line-text">
      <div class="line-title">{title}</div>
      {detail && <div class="line-detail">{detail}</div>}
    </div>
    <div class="line-actions">{actions}</div>
  </li>
);
