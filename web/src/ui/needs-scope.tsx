// A page or a part of it for keys with a scope; others read which one they lack.

import type { ComponentChildren } from "preact";
import type { Scope } from "../api/types.ts";
import { may } from "../data/session.ts";
import { texts } from "../i18n/index.ts";
import { Icon } from "./icon.tsx";
import { Code } from "./raw.tsx";

export function NeedsScope({ scope, children }: { scope: Scope; children: () => ComponentChildren }) {
  if (may(scope)) return <>{children()}</>;
  return (
    <p class="callout warn" role="status">
      <Icon name="info" /> <span>{texts.value.settings.missingScope} <Code text={scope} /></span>
    </p>
  );
}
