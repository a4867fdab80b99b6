/** Numbers, money, durations and times in the viewer's language and zone. Pure: the locale is an argument. */
import type { Language } from "./language";

const formatters = new Map<string, Intl.NumberFormat>();

function numberFormat(locale: string, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = locale + JSON.stringify(options);
  let format = formatters.get(key);
  if (!format) formatters.set(key, (format = new Intl.NumberFormat(locale, options)));
  return format;
}

export function formatNumber(value: number, locale: string, digits = 0): string {
  return numberFormat(locale, { maximumFractionDigits: digits }).format(value);
}

/** `0.614` as `61 %`: one digit where two values near 100 % or 0 % would read the same. */
export function formatPercent(ratio: number, locale: string, digits?: number): string {
  const edge = (ratio > 0 && ratio < 0.1) || (ratio > 0.99 && ratio < 1);
  const shown = numberFormat(locale, { maximumFractionDigits: digits ?? (edge ? 1 : 0) }).format(floorBelowOne(ratio) * 100);
  return `${shown}\u00a0%`;
}

/** 99.96 % must not read as 100 %. */
function floorBelowOne(ratio: number): number {
  return ratio < 1 && ratio > 0.999 ? Math.floor(ratio * 1000) / 1000 : ratio;
}

/** GPUs: whole ones without digits, shares with up to two. */
export function formatGpus(gpus: number, locale: string): string {
  return formatNumber(gpus, locale, Math.abs(gpus - Math.round(gpus)) < 0.005 ? 0 : gpus < 10 ? 2 : 1);
}

/** The amount alone, for a column whose head names the currency. */
export function formatAmount(micros: number, locale: string): string {
  const amount = micros / 1e6;
  const digits = amount !== 0 && Math.abs(amount) < 10 ? 2 : 0; // a column of small amounts lines up
  return numberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(amount);
}

/** `17,356 USD`: the code instead of a sign, because a dollar is not one currency. */
export function formatMoney(micros: number, currency: string | null | undefined, locale: string): string {
  const amount = formatAmount(micros, locale);
  return currency ? `${amount}\u00a0${currency}` : amount;
}

const UNITS: Record<Language, { d: string; h: string; m: string; s: string }> = {
  en: { d: "d", h: "h", m: "min", s: "s" },
  zh: { d: "天", h: "小时", m: "分", s: "秒" },
};

/** The two largest units: `4 d 5 h`, `6 h 12 min`, `45 s`. */
export function formatDuration(seconds: number, language: Language): string {
  const units = UNITS[language];
  const whole = Math.max(0, Math.floor(seconds));
  const d = Math.floor(whole / 86400);
  const h = Math.floor((whole % 86400) / 3600);
  const m = Math.floor((whole % 3600) / 60);
  const pair = (first: number, firstUnit: string, second: number, secondUnit: string) =>
    second ? `${first}\u00a0${firstUnit} ${second}\u00a0${secondUnit}` : `${first}\u00a0${firstUnit}`;
  if (d >= 100) return `${d}\u00a0${units.d}`;
  if (d) return pair(d, units.d, h, units.h);
  if (h) return pair(h, units.h, m, units.m);
  if (m) return `${m}\u00a0${units.m}`;
  return `${whole % 60}\u00a0${units.s}`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function formatBytes(bytes: number, locale: string): string {
  const power = bytes < 1 ? 0 : Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${formatNumber(value, locale, value < 100 && power > 0 ? 1 : 0)}\u00a0${BYTE_UNITS[power]}`;
}

/** `NVIDIA H100 80GB HBM3` as `H100`, `NVIDIA GeForce RTX 4090` as `RTX 4090`: the name that people say. */
export function shortModel(model: string): string {
  const words = model.replace(/^(NVIDIA|Tesla|AMD|GeForce|Quadro|Instinct|Ascend|\s)+/i, "").trim();
  const rtx = /^RTX\s+(?:A?\d+\w*(?:\s+(?:Ti|Super|Ada))?)/i.exec(words);
  return rtx ? rtx[0] : (words.split(/[\s-]/)[0] ?? model);
}

type TimeStyle = "time" | "minute" | "day" | "short" | "full";

const TIME_STYLES: Record<TimeStyle, Intl.DateTimeFormatOptions> = {
  time: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
  minute: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { month: "short", day: "numeric" },
  short: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  full: { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" },
};

const dateFormats = new Map<string, Intl.DateTimeFormat>();

export function formatTime(at: Date, style: TimeStyle, locale: string, timeZone?: string): string {
  const key = `${locale}|${style}|${timeZone ?? ""}`;
  let format = dateFormats.get(key);
  if (!format) {
    const options = timeZone ? { ...TIME_STYLES[style], timeZone } : TIME_STYLES[style];
    dateFormats.set(key, (format = new Intl.DateTimeFormat(locale, options)));
  }
  return format.format(at);
}

/** For the tooltip of every time: `2026-11-13 17:02:00 UTC`. */
export function formatUtc(at: Date): string {
  return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
