/** The columns of the list: how they sort, and what they are in a CSV file. Pure. */
import type { Row } from "./rows";
import type { WorkloadText } from "./texts";

type Value = number | string | null;

export interface Column {
  readonly name: string;
  readonly label: WorkloadText;
  /** As in `grid-template-columns`. */
  readonly width: string;
  readonly isNumber?: boolean;
  /** What it sorts by; null comes last in both directions. */
  readonly sortBy: (row: Row) => Value;
  /** The first click sorts downwards. */
  readonly descends?: boolean;
  /** Base units and plain text, with the unit in the head. */
  readonly csv: { readonly head: string; readonly value: (row: Row) => Value };
}

const joined = (values: readonly string[]) => values.join(" ");
const unit = (micros: number | null) => (micros === null ? null : micros / 1e6);
const iso = (seconds: number | null) => (seconds === null ? null : new Date(seconds * 1000).toISOString());
/** Idle the longest first, although that is the smallest number. */
const idleAge = (row: Row) => (row.idleSince === null ? null : -row.idleSince);

const text = (name: string, label: WorkloadText, width: string, read: (row: Row) => string): Column => ({
  name, label, width, sortBy: read, csv: { head: name, value: read },
});
const amount = (name: string, label: WorkloadText, width: string, head: string, read: (row: Row) => number | null): Column => ({
  name, label, width, isNumber: true, descends: true, sortBy: read, csv: { head, value: read },
});

export const COLUMNS: readonly Column[] = [
  text("workload", "col-workload", "minmax(190px, 3.4fr)", (row) => `${row.namespace}/${row.kind}/${row.name}`),
  text("cluster", "col-cluster", "minmax(80px, 1fr)", (row) => row.cluster),
  text("namespace", "col-namespace", "minmax(90px, 1fr)", (row) => row.namespace),
  text("kind", "col-kind", "minmax(90px, 1fr)", (row) => row.kind),
  text("user", "col-user", "minmax(64px, 0.6fr)", (row) => joined(row.users)),
  { ...amount("gpus", "col-gpus", "minmax(92px, 0.7fr)", "gpus", (row) => row.gpus), isNumber: false },
  text("model", "col-model", "minmax(90px, 1fr)", (row) => joined(row.models)),
  text("node", "col-node", "minmax(90px, 1fr)", (row) => joined(row.nodes)),
  text("state", "col-state", "84px", (row) => row.activity),
  text("signature", "col-signature", "98px", (row) => row.signature),
  text("proof", "col-proof", "100px", (row) => row.proof),
  amount("score", "col-score", "64px", "score", (row) => row.score),
  amount("idle-gpus", "col-idle-gpus", "84px", "idle_gpus", (row) => row.idleGpus),
  { name: "idle", label: "col-idle", width: "88px", isNumber: true, descends: true, sortBy: idleAge, csv: { head: "idle_since", value: (row) => iso(row.idleSince) } },
  amount("spell", "col-spell", "84px", "idle_cost_this_spell", (row) => unit(row.costSpell)),
  amount("cost", "col-cost", "76px", "idle_cost_7d", (row) => unit(row.costWeek)),
  amount("rate", "col-rate", "84px", "cost_per_hour", (row) => unit(row.costPerHour)),
  { name: "snoozed", label: "col-snoozed", width: "104px", sortBy: (row) => row.snoozedUntil, csv: { head: "snoozed_until", value: (row) => iso(row.snoozedUntil) } },
];

export const DEFAULT_COLUMNS: readonly string[] = ["workload", "user", "gpus", "signature", "idle", "cost"];
/** Where there is room for more, and nobody chose columns. */
const WIDE_COLUMNS: readonly string[] = ["workload", "user", "gpus", "node", "signature", "idle", "spell", "cost"];
export const DEFAULT_SORT = "-cost";

export const findColumn = (name: string): Column | undefined => COLUMNS.find((column) => column.name === name);

/** The columns of an address, in their fixed order; the name of the workload is always there. */
export function readColumns(text: string | undefined, isWide = false): Column[] {
  const wanted = new Set(text ? ["workload", ...text.split(",")] : isWide ? WIDE_COLUMNS : DEFAULT_COLUMNS);
  return COLUMNS.filter((column) => wanted.has(column.name));
}

export function writeColumns(names: readonly string[]): string {
  const ordered = COLUMNS.map((column) => column.name).filter((name) => names.includes(name));
  return ordered.join() === DEFAULT_COLUMNS.join() ? "" : ordered.join();
}

export interface Sort {
  readonly column: Column;
  readonly isDescending: boolean;
}

export function readSort(text: string | undefined): Sort {
  const wanted = text || DEFAULT_SORT;
  const column = findColumn(wanted.replace(/^-/, ""));
  return column ? { column, isDescending: wanted.startsWith("-") } : readSort(DEFAULT_SORT);
}

/** The sort after a click on a column. */
export function nextSort({ column, isDescending }: Sort, clicked: Column): string {
  const descends = column.name === clicked.name ? !isDescending : !!clicked.descends;
  return `${descends ? "-" : ""}${clicked.name}`;
}

export function sortRows(rows: readonly Row[], { column, isDescending }: Sort): Row[] {
  const keys = new Map(rows.map((row) => [row, column.sortBy(row)]));
  const sign = isDescending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [keys.get(a) ?? null, keys.get(b) ?? null];
    if (left === null || right === null) return left === right ? byId(a, b) : left === null ? 1 : -1;
    const order = typeof left === "number" && typeof right === "number" ? left - right : collator.compare(String(left), String(right));
    return sign * order || byId(a, b);
  });
}

const collator = new Intl.Collator("en", { numeric: true });
const byId = (a: Row, b: Row): number => (a.id < b.id ? -1 : 1);

/** What is shown, as RFC 4180. A cell that a spreadsheet would run as a formula gets an apostrophe. */
export function makeCsv(rows: readonly Row[], columns: readonly Column[]): string {
  const lines = [columns.map((column) => column.csv.head), ...rows.map((row) => columns.map((column) => column.csv.value(row)))];
  return lines.map((line) => `${line.map(formatCell).join(",")}\r\n`).join("");
}

function formatCell(value: Value): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
