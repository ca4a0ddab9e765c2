// Names in a row.

import { Code } from "../../ui/raw.tsx";

export const Names = ({ of }: { of: readonly string[] }) => <>{of.slice(0, 100).map((name) => <span key={name} class="spaced"><Code text={name} /></span>)}</>;
