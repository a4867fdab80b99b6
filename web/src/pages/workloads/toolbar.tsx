import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { wordOf } from "../../components/badge";
import { Menu, MenuItem } from "../../components/menu";
import { MenuText } from "../../components/shell";
import { useShortcuts } from "../../components/shortcuts";
import { fmt } from "../../i18n";
import { changeQuery } from "../../router";
import { COLUMNS, type Column, makeCsv, writeColumns } from "./columns";
import { setLimit, splitTerms, toggleValue, valuesOf } from "./query";
import type { Row } from "./rows";
import { texts } from "./texts";

interface Props {
  readonly rows: readonly Row[];
  readonly shown: readonly Row[];
  readonly columns: readonly Column[];
  readonly query: string;
  readonly errors: readonly string[];
}

const setQuery = (q: string) => changeQuery({ q }, { replace: true });

export function Toolbar({ rows, shown, columns, query, errors }: Props) {
  return (
    <div class="toolbar">
      <FilterInput query={query} errors={errors} />
      <div class="toolbar-filters">
        <ValueMenu field="verdict" rows={rows} query={query} read={(row) => [row.verdict]} show={(value) => wordOf("verdict", value)} />
        <ValueMenu field="signature" rows={rows} query={query} read={(row) => [row.signature]} show={(value) => wordOf("signature", value)} />
        <ValueMenu field="namespace" rows={rows} query={query} read={(row) => [row.namespace]} />
        <ValueMenu field="user" rows={rows} query={query} read={(row) => row.users} />
        <ValueMenu field="model" rows={rows} query={query} read={(row) => row.models} />
        <IdleMenu query={query} />
      </div>
      <div class="toolbar-end">
        <ColumnMenu columns={columns} currency="" />
        <button type="button" class="button" aria-label={texts("csv-label", { n: shown.length })} onClick={() => download(makeCsv(shown, columns))}>
          {texts("csv")}
        </button>
      </div>
    </div>
  );
}

/** The text of the address, editable; typing changes the address without adding to the history. */
function FilterInput({ query, errors }: { query: string; errors: readonly string[] }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(query);
  useEffect(() => {
    if (document.activeElement !== input.current || !query) setText(query);
  }, [query]);
  useShortcuts({ f: () => input.current?.focus() });
  const onInput = (value: string) => {
    setText(value);
    setQuery(value);
  };
  const hasErrors = errors.length > 0 && text.trim() !== "";
  return (
    <div class="filter">
      <input
        ref={input}
        class="field"
        type="search"
        value={text}
        placeholder={texts("filter-placeholder")}
        aria-label={texts("filter-label")}
        aria-describedby="filter-note"
        aria-invalid={hasErrors}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && (text ? onInput("") : input.current?.blur())}
        title={texts("filter-help")}
      />
      <span id="filter-note" class={hasErrors ? "filter-error" : "visually-hidden"} role="status">
        {hasErrors ? texts("filter-error", { terms: errors.join(", ") }) : ""}
      </span>
    </div>
  );
}

interface ValueMenuProps {
  readonly field: "verdict" | "signature" | "namespace" | "user" | "model";
  readonly rows: readonly Row[];
  readonly query: string;
  readonly read: (row: Row) => readonly string[];
  readonly show?: (value: string) => string;
}

const FIND_FROM = 12;
const MOST_VALUES = 200;

/** The values of one column with their counts; a choice changes the filter text. */
function ValueMenu({ field, rows, query, read, show = (value) => value }: ValueMenuProps) {
  const chosen = valuesOf(query, field);
  const label = texts(`filter-${field}`);
  const text = chosen.length ? `${label} · ${chosen.length}` : label;
  return (
    <Menu text={<MenuText text={text} />} label={label} isNamed class={`button${chosen.length ? " button-chosen" : ""}`}>
      {() => <ValueList rows={rows} chosen={chosen} read={read} show={show} onToggle={(value) => setQuery(toggleValue(query, field, value))} onClear={() => setQuery(splitTerms(query).filter((term) => !term.startsWith(`${field}:`)).join(" "))} />}
    </Menu>
  );
}

interface ValueListProps {
  readonly rows: readonly Row[];
  readonly chosen: readonly string[];
  readonly read: (row: Row) => readonly string[];
  readonly show: (value: string) => string;
  readonly onToggle: (value: string) => void;
  readonly onClear: () => void;
}

function ValueList({ rows, chosen, read, show, onToggle, onClear }: ValueListProps) {
  const [wanted, setWanted] = useState("");
  const counts = useMemo(() => countValues(rows, read), [rows]);
  const found = counts.filter(([value]) => show(value).toLowerCase().includes(wanted.toLowerCase()));
  return (
    <>
      {counts.length >= FIND_FROM && (
        <input class="field menu-find" type="search" placeholder={texts("filter-find")} aria-label={texts("filter-find")} value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
      )}
      {found.slice(0, MOST_VALUES).map(([value, count]) => (
        <MenuItem key={value} kind="checkbox" isChecked={chosen.includes(value.toLowerCase())} onChoose={() => onToggle(value)}>
          <span class="menu-value">
            <span>{show(value) || "–"}</span>
            <span class="secondary">{fmt.number(count)}</span>
          </span>
        </MenuItem>
      ))}
      {chosen.length > 0 && (
        <>
          <hr />
          <MenuItem onChoose={onClear}>{texts("filter-clear")}</MenuItem>
        </>
      )}
    </>
  );
}

function countValues(rows: readonly Row[], read: (row: Row) => readonly string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const value of read(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}

const IDLE_LIMITS: readonly (readonly [string, number])[] = [["1h", 3600], ["6h", 21_600], ["1d", 86_400], ["3d", 259_200], ["7d", 604_800]];

function IdleMenu({ query }: { query: string }) {
  const current = /(?:^|\s)idle>=?(\S+)/.exec(query)?.[1] ?? "";
  const choose = (limit: string) => setQuery(setLimit(query, "idle", limit && `>${limit}`));
  const label = texts("filter-idle");
  return (
    <Menu text={<MenuText text={current ? `${label} > ${current}` : label} />} label={label} isNamed class={`button${current ? " button-chosen" : ""}`}>
      {(close) => (
        <>
          <MenuItem kind="radio" isChecked={!current} onChoose={() => (choose(""), close())}>{texts("filter-any")}</MenuItem>
          {IDLE_LIMITS.map(([limit, seconds]) => (
            <MenuItem key={limit} kind="radio" isChecked={current === limit} onChoose={() => (choose(limit), close())}>
              {texts("filter-more-than", { duration: fmt.duration(seconds) })}
            </MenuItem>
          ))}
        </>
      )}
    </Menu>
  );
}

function ColumnMenu({ columns, currency }: { columns: readonly Column[]; currency: string }) {
  const names = columns.map((column) => column.name);
  const toggle = (name: string) =>
    changeQuery({ columns: writeColumns(names.includes(name) ? names.filter((each) => each !== name) : [...names, name]) }, { replace: true });
  return (
    <Menu text={<MenuText text={texts("columns")} />} label={texts("columns")} isNamed align="end">
      {() => (
        <>
          {COLUMNS.filter((column) => column.name !== "workload").map((column) => (
            <MenuItem key={column.name} kind="checkbox" isChecked={names.includes(column.name)} onChoose={() => toggle(column.name)}>
              {texts(column.label, { currency: currency || texts("costs") })}
            </MenuItem>
          ))}
          <hr />
          <MenuItem onChoose={() => changeQuery({ columns: "" }, { replace: true })}>{texts("columns-reset")}</MenuItem>
        </>
      )}
    </Menu>
  );
}

function download(text: string): void {
  const url = URL.createObjectURL(new Blob([`\ufeff${text}`], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `gpusteward-workloads-${new Date().toISOString().slice(0, 10)}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
