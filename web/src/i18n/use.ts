/** Formats with the current language, for components. */
import * as format from "./format";
import { language, locale } from "./language";

export const number = (value: number, digits = 0) => format.formatNumber(value, locale.value, digits);
export const percent = (ratio: number, digits?: number) => format.formatPercent(ratio, locale.value, digits);
export const gpus = (value: number) => format.formatGpus(value, locale.value);
export const amount = (micros: number) => format.formatAmount(micros, locale.value);
/** For columns, where digits after the point would only disturb. */
export const wholeAmount = (micros: number) => (micros > 0 && micros < 1e6 ? "<1" : format.formatNumber(micros / 1e6, locale.value));
export const money = (micros: number, currency: string | null | undefined) => format.formatMoney(micros, currency, locale.value);
export const duration = (seconds: number) => format.formatDuration(seconds, language.value);
export const bytes = (value: number) => format.formatBytes(value, locale.value);
export const model = format.shortModel;
export const time = (at: Date, style: Parameters<typeof format.formatTime>[1]) => format.formatTime(at, style, locale.value);
export const utc = format.formatUtc;
