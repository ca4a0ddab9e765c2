// The keys of the page.

import { texts } from "../i18n/index.ts";
import { Dialog } from "../ui/dialog.tsx";
import { sections } from "../ui/sections.ts";

export function Help({ close }: { close: () => void }) {
  const t = texts.value.help;
  const rows: [string[], string][] = [
    [["/", "Ctrl K"], t.find],
    ...sections.map(({ name, key }): [string[], string] => [[`g ${key}`], t.goTo(texts.value.nav[name])]),
    [["j", "k"], t.move],
    [["Enter"], t.open],
    [["a"], t.allow],
    [["d"], t.deny],
    [["p"], t.pause],
    [["?"], t.help],
    [["Esc"], t.close],
  ];
  return (
    <Dialog title={t.title} close={close}>
      <dl class="keys">
        {rows.map(([keys, text]) => (
          <div key={keys[0]}>
            <dt>
              {keys.map((key) => (
                <kbd key={key} data-raw>
                  {key}
                </kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
