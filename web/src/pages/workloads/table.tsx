/** A table that draws only the rows in view. Rows have one height, so that their place follows from their number. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { SignatureBadge, wordOf } from "../../components/badge";
import { useSize } from "../../components/size";
import { WorkloadName, workloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { changeQuery, route } from "../../router";
import { type Column, measureColumns, nextSort, type Sort } from "./columns";
import type { Row } from "./rows";
import { texts } from "./texts";
import { openRow } from "./workloads";

const ROW_HEIGHT = 39;
const OVERSCAN = 8;

interface Props {
  readonly rows: readonly Row[];
  readonly total: number;
  readonly columns: readonly Column[];
  readonly sort: Sort;
  readonly currency: string;
  readonly openedId: string | null;
  readonly isFiltered: boolean;
  /** Unix seconds. */
  readonly now: number;
}

export function Table(props: Props) {
  const { rows, columns, openedId } = props;
  const [scroller, { height }] = useSize<HTMLDivElement>();
  const [top, setTop] = useState(0);
  const [cursor, setCursor] = useState(-1);
  useScrollFrames(scroller, setTop);
  useKeepPlace(scroller, rows);
  const openedAt = openedId === null ? -1 : rows.findIndex((row) => row.id === openedId);
  useReveal(scroller, openedId, openedAt);

  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_HEIGHT) + OVERSCAN);
  const { template, least } = measureColumns(columns);
  const current = cursor >= 0 ? cursor : openedAt;

  const onKey = (event: KeyboardEvent) => {
    const next = moveCursor(event.key, current, rows.length, Math.max(1, Math.floor(height / ROW_HEIGHT) - 2));
    if (next !== null) {
      event.preventDefault();
      setCursor(next);
      revealRow(scroller.current!, next);
      if (openedId !== null) openRow(rows[next]!, true);
    } else if (event.key === "Enter" && rows[current]) openRow(rows[current]);
  };

  return (
    <>
      <div
        ref={scroller}
        class="grid"
        role="grid"
        tabIndex={0}
        aria-label={texts("list")}
        aria-rowcount={rows.length + 1}
        aria-activedescendant={current >= first && current < last ? `row-${current}` : undefined}
        onKeyDown={onKey}
        onBlur={() => setCursor(-1)}
      >
        <Head {...props} template={template} least={least} />
        <div class="grid-body" role="rowgroup" style={{ height: `${rows.length * ROW_HEIGHT}px`, minWidth: `${least}px` }}>
          {rows.slice(first, last).map((row, index) => (
            <TableRow
              key={row.id}
              row={row}
              at={first + index}
              columns={columns}
              template={template}
              isOpen={row.id === openedId}
              isCurrent={first + index === cursor}
              now={props.now}
            />
          ))}
        </div>
        {rows.length === 0 && <p class="grid-empty">{texts(props.isFiltered ? "empty-filter" : "empty")}</p>}
      </div>
      <Footer {...props} />
    </>
  );
}

function Head({ columns, sort, currency, template, least }: Props & { template: string; least: number }) {
  return (
    <div class="grid-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template, minWidth: `${least}px` }}>
      {columns.map((column) => {
        const isSorted = column.name === sort.column.name;
        const label = texts(column.label, { currency });
        return (
          <div
            key={column.name}
            role="columnheader"
            class={column.isNumber ? "number" : ""}
            aria-sort={isSorted ? (sort.isDescending ? "descending" : "ascending") : undefined}
          >
            <button type="button" title={texts("sort-hint", { column: label })} onClick={() => changeQuery({ sort: nextSort(sort, column) })}>
              {label}
              {isSorted && <span aria-hidden="true"> {sort.isDescending ? "↓" : "↑"}</span>}
            </button>
          </div>
        );
      })}
    </div>
  );
}

interface RowProps {
  readonly row: Row;
  readonly at: number;
  readonly columns: readonly Column[];
  readonly template: string;
  readonly isOpen: boolean;
  readonly isCurrent: boolean;
  readonly now: number;
}

function TableRow({ row, at, columns, template, isOpen, isCurrent, now }: RowProps) {
  const classes = ["grid-row", isOpen && "grid-row-open", isCurrent && "grid-row-current"].filter(Boolean).join(" ");
  return (
    <div
      id={`row-${at}`}
      class={classes}
      role="row"
      aria-rowindex={at + 2}
      aria-selected={isOpen}
      style={{ gridTemplateColumns: template, transform: `translateY(${at * ROW_HEIGHT}px)` }}
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || String(getSelection()) !== "") return;
        event.preventDefault();
        openRow(row);
      }}
    >
      {columns.map((column) => (
        <div key={column.name} role="gridcell" class={column.isNumber ? "number" : "grid-text"}>
          {showCell(column.name, row, now)}
        </div>
      ))}
    </div>
  );
}

const NONE = <span class="secondary">–</span>;

/** The address of the row keeps the filter of the list. */
function rowHref(row: Row): string {
  const { q, sort, columns } = route.value.query;
  return workloadLink(row, { q, sort, columns });
}

const CELLS: Readonly<Record<string, (row: Row, now: number) => ComponentChildren>> = {
  workload: (row) => (
    <>
      <a class="workload-link" tabIndex={-1} href={rowHref(row)}><WorkloadName of={row} /></a>
      {row.snoozedUntil !== null && <span class="snoozed" title={texts("snoozed", { time: fmt.time(new Date(row.snoozedUntil * 1000), "short") })}>{texts("snoozed-short")}</span>}
    </>
  ),
  cluster: (row) => row.cluster || NONE,
  namespace: (row) => row.namespace,
  kind: (row) => row.kind,
  user: (row) => row.users.join(", ") || NONE,
  gpus: (row) => `${fmt.gpus(row.gpus)} × ${[...new Set(row.models.map(fmt.model))].join(", ") || "GPU"}`,
  model: (row) => row.models.join(", "),
  node: (row) => (row.nodesTotal > 1 ? `${row.nodes[0]} +${row.nodesTotal - 1}` : row.nodes[0]),
  verdict: (row) => wordOf("verdict", row.verdict),
  signature: (row) => <SignatureBadge signature={row.signature} />,
  proof: (row) => texts(row.proof === "integrated" ? "proof-integrated" : "proof-sampled"),
  score: (row) => (row.score === null ? NONE : fmt.number(row.score, 1)),
  "idle-gpus": (row) => (row.idleGpus ? fmt.gpus(row.idleGpus) : NONE),
  idle: (row, now) => (row.idleSince === null ? NONE : fmt.duration(now - row.idleSince)),
  spell: (row) => (row.costSpell ? fmt.wholeAmount(row.costSpell) : NONE),
  cost: (row) => (row.costWeek === null ? NONE : fmt.wholeAmount(row.costWeek)),
  rate: (row) => (row.costPerHour === null ? NONE : fmt.wholeAmount(row.costPerHour)),
  snoozed: (row) => (row.snoozedUntil === null ? NONE : fmt.time(new Date(row.snoozedUntil * 1000), "short")),
};

function showCell(column: string, row: Row, now: number): ComponentChildren {
  return CELLS[column]?.(row, now) ?? NONE;
}

function Footer({ rows, total, isFiltered }: Props) {
  const sum = (read: (row: Row) => number) => rows.reduce((all, row) => all + read(row), 0);
  const fields = { n: rows.length, total: fmt.number(total), gpus: fmt.gpus(round(sum((row) => row.gpus))), idle: fmt.gpus(round(sum((row) => row.idleGpus))) };
  return <p class="grid-footer" role="status">{texts(isFiltered && rows.length !== total ? "footer-of" : "footer", fields)}</p>;
}

const round = (gpus: number): number => (gpus >= 20 ? Math.round(gpus) : gpus);

function useScrollFrames(scroller: { current: HTMLDivElement | null }, onTop: (top: number) => void): void {
  useEffect(() => {
    const element = scroller.current!;
    let frame = 0;
    const onScroll = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        onTop(element.scrollTop);
      });
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      cancelAnimationFrame(frame);
      element.removeEventListener("scroll", onScroll);
    };
  }, []);
}

/** After a refresh the row that was at the top of the view is there again, wherever it sorts now. */
function useKeepPlace(scroller: { current: HTMLDivElement | null }, rows: readonly Row[]): void {
  const before = useRef<{ readonly rows: readonly Row[]; readonly view: string }>({ rows, view: "" });
  const { q = "", sort = "" } = route.value.query;
  const view = `${q}|${sort}`;
  useLayoutEffect(() => {
    const { rows: old, view: oldView } = before.current;
    before.current = { rows, view };
    const element = scroller.current!;
    if (old === rows) return;
    if (oldView !== view) {
      element.scrollTop = 0;
      return;
    }
    const top = Math.floor(element.scrollTop / ROW_HEIGHT);
    const anchor = old[top]?.id;
    if (top < 1 || !anchor || rows[top]?.id === anchor) return;
    const next = rows.findIndex((row) => row.id === anchor);
    if (next >= 0) element.scrollTop += (next - top) * ROW_HEIGHT;
  }, [rows, view]);
}

/** A row opened from elsewhere is scrolled into view once. */
function useReveal(scroller: { current: HTMLDivElement | null }, id: string | null, at: number): void {
  const revealed = useRef<string | null>(null);
  useLayoutEffect(() => {
    if (id === null || at < 0 || revealed.current === id) return;
    revealed.current = id;
    revealRow(scroller.current!, at);
  }, [id, at]);
}

function revealRow(scroller: HTMLElement, at: number): void {
  const top = at * ROW_HEIGHT;
  const room = scroller.clientHeight - HEAD_HEIGHT - ROW_HEIGHT;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
}

const HEAD_HEIGHT = 36;

function moveCursor(key: string, at: number, count: number, page: number): number | null {
  const targets: Record<string, number> = {
    ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: count - 1,
  };
  const next = targets[key];
  return next === undefined || count === 0 ? null : Math.max(0, Math.min(count - 1, next));
}
