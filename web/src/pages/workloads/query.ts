/**
 * The search syntax of the list: `namespace:vision,speech idle>1h -state:active moe`.
 *
 * A word without a field is looked for in names, people, models and nodes. `field:a,b` means one of them, `*` stands
 * for anything, `-` before a term negates it. Numbers take > >= < <=, durations have a unit. Pure.
 */
import type { Row } from "./rows";

type Text = (row: Row) => string | readonly string[];
type Amount = (row: Row, now: number) => number | null;

/** Whether a value must match as a whole, or may be a part of the text. */
interface TextField {
  readonly read: Text;
  readonly isWhole: boolean;
}

export const TEXT_FIELDS: Readonly<Record<string, TextField>> = {
  cluster: { read: (row) => row.cluster, isWhole: true },
  namespace: { read: (row) => row.namespace, isWhole: true },
  kind: { read: (row) => row.kind, isWhole: true },
  name: { read: (row) => row.name, isWhole: false },
  user: { read: (row) => row.users, isWhole: true },
  model: { read: (row) => row.models, isWhole: false },
  node: { read: (row) => row.nodes, isWhole: false },
  verdict: { read: (row) => row.verdict, isWhole: true },
  state: { read: (row) => row.activity, isWhole: true },
  signature: { read: (row) => row.signature, isWhole: true },
  proof: { read: (row) => row.proof, isWhole: true },
  is: { read: (row) => (row.snoozedUntil ? ["snoozed"] : []), isWhole: true },
};

export const NUMBER_FIELDS: Readonly<Record<string, Amount>> = {
  idle: (row, now) => (row.idleSince === null ? null : now - row.idleSince),
  gpus: (row) => row.gpus,
  "idle-gpus": (row) => row.idleGpus,
  "unknown-gpus": (row) => row.unknownGpus,
  score: (row) => row.score,
  cost: (row) => (row.costWeek === null ? null : row.costWeek / 1e6),
  spell: (row) => (row.costSpell === null ? null : row.costSpell / 1e6),
};

/** Fields whose numbers are durations. */
const DURATION_FIELDS = new Set(["idle"]);

/** Other words for the same field. */
const ALIASES: Readonly<Record<string, string>> = {
  ns: "namespace", owner: "user", people: "user", gpu: "model", activity: "state", sig: "signature", type: "kind",
};

type Operator = ">" | ">=" | "<" | "<=" | "=";

export type Term =
  | { readonly type: "word"; readonly text: string; readonly negated: boolean }
  | { readonly type: "values"; readonly field: string; readonly values: readonly string[]; readonly negated: boolean }
  | { readonly type: "number"; readonly field: string; readonly operator: Operator; readonly value: number; readonly negated: boolean };

export interface ParsedQuery {
  readonly terms: readonly Term[];
  /** Parts that were not understood; they filter nothing. */
  readonly errors: readonly string[];
}

const TERM = /(-?)(?:([a-z-]+)(:|>=|<=|>|<|=))?((?:"[^"]*"|[^\s"])*)/giy;

/** Split at spaces outside of quotes. */
export function splitTerms(text: string): string[] {
  return text.match(/(?:"[^"]*"?|[^\s"])+/g) ?? [];
}

export function parseQuery(text: string): ParsedQuery {
  const terms: Term[] = [];
  const errors: string[] = [];
  for (const part of splitTerms(text)) {
    const term = parseTerm(part);
    if (term) terms.push(term);
    else errors.push(part);
  }
  return { terms, errors };
}

function parseTerm(part: string): Term | null {
  TERM.lastIndex = 0;
  const [, minus, name = "", operator = "", value = ""] = TERM.exec(part) ?? [];
  const negated = minus === "-";
  if (!operator) return value ? { type: "word", text: unquote(value).toLowerCase(), negated } : null;
  const field = ALIASES[name.toLowerCase()] ?? name.toLowerCase();
  if (operator !== ":" && field in NUMBER_FIELDS) {
    const number = parseNumber(value, DURATION_FIELDS.has(field));
    return number === null ? null : { type: "number", field, operator: operator as Operator, value: number, negated };
  }
  if ((operator === ":" || operator === "=") && field in TEXT_FIELDS) {
    const values = splitValues(value);
    return values.length ? { type: "values", field, values, negated } : null;
  }
  return null;
}

function splitValues(text: string): string[] {
  return (text.match(/"[^"]*"|[^,"]+/g) ?? []).map((each) => unquote(each).toLowerCase()).filter(Boolean);
}

function unquote(text: string): string {
  return text.replaceAll('"', "");
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400, w: 604_800 };

function parseNumber(text: string, isDuration: boolean): number | null {
  const match = /^(\d+(?:\.\d+)?)([a-z]*)$/i.exec(text);
  if (!match) return null;
  const unit = match[2]!.toLowerCase();
  if (!isDuration) return unit ? null : Number(match[1]);
  const seconds = UNIT_SECONDS[unit || "h"];
  return seconds === undefined ? null : Number(match[1]) * seconds;
}

/** A test of one row; `now` in seconds. */
export function compileQuery({ terms }: ParsedQuery, now: number): (row: Row) => boolean {
  const tests = terms.map((term) => compileTerm(term, now));
  return (row) => tests.every((test) => test(row));
}

function compileTerm(term: Term, now: number): (row: Row) => boolean {
  const test = compilePositive(term, now);
  return term.negated ? (row) => !test(row) : test;
}

function compilePositive(term: Term, now: number): (row: Row) => boolean {
  if (term.type === "word") return (row) => row.haystack.includes(term.text);
  if (term.type === "number") {
    const read = NUMBER_FIELDS[term.field]!;
    return (row) => {
      const value = read(row, now);
      return value !== null && compare(value, term.operator, term.value);
    };
  }
  const { read, isWhole } = TEXT_FIELDS[term.field]!;
  const tests = term.values.map((value) => compileText(value, isWhole));
  return (row) => {
    const found = read(row);
    const texts = typeof found === "string" ? [found] : found;
    return texts.some((each) => tests.some((test) => test(each.toLowerCase())));
  };
}

function compileText(value: string, isWhole: boolean): (text: string) => boolean {
  if (value.includes("*")) {
    const pattern = new RegExp(`^${value.split("*").map(escapeRegex).join(".*")}$`);
    return (text) => pattern.test(text);
  }
  return isWhole ? (text) => text === value : (text) => text.includes(value);
}

const escapeRegex = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

function compare(value: number, operator: Operator, limit: number): boolean {
  if (operator === ">") return value > limit;
  if (operator === ">=") return value >= limit;
  if (operator === "<") return value < limit;
  if (operator === "<=") return value <= limit;
  return value === limit;
}

/** The values that a query chooses for a field, for the checks of a menu. */
export function valuesOf(text: string, field: string): readonly string[] {
  const found = parseQuery(text).terms.find((term) => term.type === "values" && term.field === field && !term.negated);
  return found?.type === "values" ? found.values : [];
}

/** The query with other values for a field; none removes the term. The rest stays as it was typed. */
export function setValues(text: string, field: string, values: readonly string[]): string {
  const rest = splitTerms(text).filter((part) => {
    const term = parseTerm(part);
    return !(term?.type === "values" && term.field === field && !term.negated);
  });
  if (values.length) rest.push(`${field}:${values.map(quote).join(",")}`);
  return rest.join(" ");
}

export function toggleValue(text: string, field: string, value: string): string {
  const before = valuesOf(text, field);
  const wanted = value.toLowerCase();
  return setValues(text, field, before.includes(wanted) ? before.filter((each) => each !== wanted) : [...before, wanted]);
}

/** The query with another limit for a number; empty removes it. */
export function setLimit(text: string, field: string, limit: string): string {
  const rest = splitTerms(text).filter((part) => {
    const term = parseTerm(part);
    return !(term?.type === "number" && term.field === field);
  });
  if (limit) rest.push(`${field}${limit}`);
  return rest.join(" ");
}

const quote = (value: string): string => (/[\s,"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value);
