import { signal } from "@preact/signals";
import { t, type TextKey } from "../i18n";
import { PAGES } from "../pages";
import { Dialog } from "./dialog";
import { useShortcuts } from "./shortcuts";

export const isHelpOpen = signal(false);

const KEYS: readonly (readonly [readonly string[], TextKey])[] = [
  [["/"], "help.search"],
  [["f"], "help.filter"],
  [["↑", "↓"], "help.move"],
  [["Enter"], "help.select"],
  [["Esc"], "help.close"],
  [["?"], "help.help"],
];

export function Help() {
  useShortcuts({ "?": () => (isHelpOpen.value = true) });
  if (!isHelpOpen.value) return null;
  const pages = PAGES.filter((page) => page.label && page.key);
  return (
    <Dialog title={t("help.title")} onClose={() => (isHelpOpen.value = false)}>
      <dl class="keys">
        {KEYS.map(([keys, text]) => (
          <Key key={text} keys={keys} text={t(text)} />
        ))}
        {pages.map((page) => (
          <Key key={page.name} keys={["g", page.key!]} text={t(page.label!)} />
        ))}
      </dl>
    </Dialog>
  );
}

function Key({ keys, text }: { keys: readonly string[]; text: string }) {
  return (
    <div>
      <dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>
      <dd>{text}</dd>
    </div>
  );
}
