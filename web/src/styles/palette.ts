/** The colours of the tokens as the browser resolved them, for a canvas. */
export function readColours<Name extends string>(names: readonly Name[]): Record<Name, string> {
  const probe = document.createElement("i");
  document.body.append(probe);
  const colours = {} as Record<Name, string>;
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
}
