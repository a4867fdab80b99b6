/** Choices of the person that outlive the tab: theme, language, columns. Nothing secret. */
const PREFIX = "gpusteward.";

export function readChoice(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null; // storage is blocked: the default applies
  }
}

export function writeChoice(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // storage is blocked: the choice lasts as long as the tab
  }
}
