import { en } from "./en";
import { defineTexts } from "./translate";
import { zh } from "./zh";

/** The texts of the shell and the shared components. */
export const t = defineTexts(en, zh);
export type TextKey = keyof typeof en;
export { defineTexts } from "./translate";
export { language, locale } from "./language";
export * as fmt from "./use";
