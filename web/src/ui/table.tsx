// A small table in a card. A wide one scrolls in itself.

import type { ComponentChildren } from "preact";

export function Table({ label, heads, children }: { label: string; heads: readonly ComponentChildren[]; children: ComponentChildren }) {
  return (
    <div class="card scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>{heads.map((head, index) => <th key={index} scope="col">{head}</th>)}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
