/** The columns of the list: how they sort, and what they are in a CSV file. Pure. */
import type { Row } from "./rows";
import type { WorkloadText } from "./texts";

type Value = number | string | null;

export interface Column {
  readonly name: string;
  readonly label: WorkloadText;
  /** At least this many pixels. */
  readonly width: number;
  /** Its share of the room that is left; 0: none. */
  readonly grow: number;
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

const text = (name: string, label: WorkloadText, width: number, grow: number, read: (row: Row) => string): Column => ({
  name, label, width, grow, sortBy: read, csv: { head: name, value: read },
});
const amount = (name: string, label: WorkloadText, width: number, head: string, read: (row: Row) => number | null): Column => ({
  name, label, width, grow: 0, isNumber: true, descends: true, sortBy: read, csv: { head, value: read },
});

export const COLUMNS: readonly Column[] = [
  text("workload", "col-workload", 148, 3.4, (row) => `${row.namespace}/${row.kind}/${row.name}`),
  text("cluster", "col-cluster", 80, 1, (row) => row.cluster),
  text("namespace", "col-namespace", 90, 1, (row) => row.namespace),
  text("kind", "col-kind", 90, 1, (row) => row.kind),
  text("user", "col-user", 64, 0.6, (row) => joined(row.users)),
  { ...amount("gpus", "col-gpus", 106, "gpus", (row) => row.gpus), grow: 0.7, isNumber: false },
  text("model", "col-model", 90, 1, (row) => joined(row.models)),
  text("node", "col-node", 90, 1, (row) => joined(row.nodes)),
  text("verdict", "col-verdict", 90, 0, (row) => row.verdict),
  text("signature", "col-signature", 98, 0, (row) => row.signature),
  text("proof", "col-proof", 100, 0, (row) => row.proof),
  amount("score", "col-score", 64, "score", (row) => row.score),
  amount("idle-gpus", "col-idle-gpus", 84, "idle_gpus", (row) => row.idleGpus),
  { name: "idle", label: "col-idle", width: 88, grow: 0, isNumber: true, descends: true, sortBy: idleAge, csv: { head: "idle_since", value: (row) => iso(row.idleSince) } },
  amount("spell", "col-spell", 84, "idle_cost_this_spell", (row) => unit(row.costSpell)),
  amount("cost", "col-cost", 76, "idle_cost_7d", (row) => unit(row.costWeek)),
  amount("rate", "col-rate", 84, "cost_per_hour", (row) => unit(row.costPerHour)),
  { name: "snoozed", label: "col-snoozed", width: 104, grow: 0, sortBy: (row) => row.snoozedUntil, csv: { head: "snoozed_until", value: (row) => iso(row.snoozedUntil) } },
];

export const DEFAULT_COLUMNS: readonly string[] = ["workload", "user", "gpus", "signature", "idle", "cost"];
const NARROW_COLUMNS: readonly string[] = ["workload", "idle", "cost"];
/** Where there is room for more, and nobody chose columns. */
const WIDE_COLUMNS: readonly string[] = ["workload", "user", "gpus", "node", "signature", "idle", "spell", "cost"];
/** Without money the longest idle are first. */
const DEFAULT_SORTS: Readonly<Record<Known, string>> = { all: "-cost", spell: "-spell", none: "-idle" };

export const findColumn = (name: string): Column | undefined => COLUMNS.find((column) => column.name === name);

/** What of the money is known here: nothing without prices, and without the ledger only that of the present spell. */
export type Known = "all" | "spell" | "none";

export function findKnown(rows: readonly Row[]): Known {
  if (rows.length === 0 || rows.some((row) => row.costWeek !== null)) return "all";
  return rows.some((row) => row.costSpell !== null) ? "spell" : "none";
}

const INSTEAD: Readonly<Record<Known, string>> = { all: "cost", spell: "spell", none: "idle-gpus" };

/** The columns of an address, in their fixed order; the name of the workload is always there. */
export function readColumns(text: string | undefined, room = 800, known: Known = "all"): Column[] {
  const wanted = new Set(text ? ["workload", ...text.split(",")] : chooseDefault(room, known));
  return COLUMNS.filter((column) => wanted.has(column.name));
}

function chooseDefault(room: number, known: Known): readonly string[] {
  const names = room >= WIDE_FROM ? WIDE_COLUMNS : room >= NARROW_BELOW ? DEFAULT_COLUMNS : NARROW_COLUMNS;
  return known === "all" ? names : [...names.filter((name) => name !== "cost" && name !== "spell"), INSTEAD[known]];
}

const WIDE_FROM = 1080;
const NARROW_BELOW = 560;

/** `grid-template-columns`, and the width below which the table scrolls sideways. */
export function measureColumns(columns: readonly Column[]): { readonly template: string; readonly least: number } {
  const template = columns.map(({ width, grow }) => (grow ? `minmax(${width}px, ${grow}fr)` : `${width}px`)).join(" ");
  return { template, least: columns.reduce((sum, { width }) => sum + width + COLUMN_GAP, COLUMN_GAP) };
}

const COLUMN_GAP = 12;

export function writeColumns(names: readonly string[]): string {
  const ordered = COLUMNS.map((column) => column.name).filter((name) => names.includes(name));
  return ordered.join() === DEFAULT_COLUMNS.join() ? "" : ordered.join();
}

export interface Sort {
  readonly column: Column;
  readonly isDescending: boolean;
}

export function readSort(text: string | undefined, known: Known = "all"): Sort {
  const wanted = text || DEFAULT_SORTS[known];
  const column = findColumn(wanted.replace(/^-/, ""));
  return column ? { column, isDescending: wanted.startsWith("-") } : readSort(undefined, known);
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
