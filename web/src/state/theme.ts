import { effect, signal } from "@preact/signals";
import { readChoice, writeChoice } from "./storage";

export type Theme = "system" | "light" | "dark";

const stored = readChoice("theme");

export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

/** Counts changes of the colours in force, so that a canvas knows when to draw again. */
export const paletteVersion = signal(0);

export function chooseTheme(next: Theme): void {
  theme.value = next;
  writeChoice("theme", next === "system" ? null : next);
}

export function startTheme(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "system") delete root.dataset["theme"];
    else root.dataset["theme"] = theme.value;
    paletteVersion.value = paletteVersion.peek() + 1;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paletteVersion.value++);
}
