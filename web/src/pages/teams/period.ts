/** The period of a report: the last days of the whole page, a calendar month, or two dates. Pure: today is an argument. */

export type PeriodKind = "days" | "this-month" | "last-month" | "dates";

export interface Period {
  readonly kind: PeriodKind;
  /** As the API takes it: `7d`, or a date in UTC. */
  readonly since: string;
  /** The end, not included; undefined: now. */
  readonly until: string | undefined;
}

const DATE = /^\d{4}-\d{2}-\d{2}$/;
const DAY_MS = 86_400_000;

export const formatDate = (at: Date): string => at.toISOString().slice(0, 10);

/** The day after a date: people name the last day, the API wants the end of the period. */
export function nextDay(date: string): string {
  return formatDate(new Date(Date.parse(`${date}T00:00:00Z`) + DAY_MS));
}

function monthBegin(today: Date, offset: number): string {
  return formatDate(new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + offset, 1)));
}

function isDate(text: string | undefined): text is string {
  return text !== undefined && DATE.test(text) && !Number.isNaN(Date.parse(text));
}

/** The period of an address; what cannot be read is the last days. */
export function readPeriod(query: Readonly<Record<string, string>>, days: number, today: Date): Period {
  const { period, from, to } = query;
  if (period === "this-month") return { kind: period, since: monthBegin(today, 0), until: undefined };
  if (period === "last-month") return { kind: period, since: monthBegin(today, -1), until: monthBegin(today, 0) };
  if (period === "dates" && isDate(from) && isDate(to) && from <= to) return { kind: period, since: from, until: nextDay(to) };
  return { kind: "days", since: `${days}d`, until: undefined };
}
