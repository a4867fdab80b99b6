/** The language of the page: chosen by the person, else that of the browser. */
import { computed, signal } from "@preact/signals";
import { readChoice, writeChoice } from "../state/storage";

export type Language = "en" | "zh";

const choices = typeof navigator === "undefined" ? ["en"] : (navigator.languages ?? [navigator.language]);

function detect(): Language {
  const stored = readChoice("language");
  if (stored === "en" || stored === "zh") return stored;
  const first = choices.find((each) => /^(zh|en)\b/i.test(each));
  return first?.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export const language = signal<Language>(detect());

/** The locale of numbers, money and times: the viewer's own variant of the language where the browser names one. */
export const locale = computed(() => {
  const own = choices.find((each) => each.toLowerCase().startsWith(language.value));
  return own ?? (language.value === "zh" ? "zh-CN" : "en");
});

export function chooseLanguage(next: Language): void {
  language.value = next;
  writeChoice("language", next);
}
