/** The list of workloads, and the opened one beside it. The whole view is in the address. */
import { useMemo } from "preact/hooks";
import { useResource } from "../../api/resources";
import { useShortcuts } from "../../components/shortcuts";
import { DataState } from "../../components/panel";
import { useSize } from "../../components/size";
import { useNow } from "../../components/time";
import { readWorkloadPath, workloadPath } from "../../components/workload-link";
import { formatRoute, navigate, route } from "../../router";
import { cluster } from "../../state/filters";
import { findKnown, readColumns, readSort, sortRows } from "./columns";
import { Detail } from "./detail/detail";
import { compileQuery, parseQuery } from "./query";
import { makeRows, type Row, rowId } from "./rows";
import { Table } from "./table";
import { texts } from "./texts";
import { Toolbar } from "./toolbar";
import "./workloads.css";

export default function Workloads() {
  const table = useResource("/api/v1/workloads/table", { cluster: cluster.value });
  const opened = readWorkloadPath(route.value.path, cluster.value);
  const [root, { width }] = useSize<HTMLDivElement>();
  useShortcuts({ Escape: () => opened && openRow(null) });
  return (
    <div class={`workloads${opened ? " workloads-open" : ""}`}>
      <div ref={root} class="workloads-list">
        <h1 class="visually-hidden">{texts("list")}</h1>
        <DataState resource={table} lines={14}>
          {(data) => <List data={data} openedId={opened ? rowId(opened) : null} room={width} />}
        </DataState>
      </div>
      {opened && <Detail key={rowId(opened)} of={opened} onClose={() => openRow(null)} />}
    </div>
  );
}

/** Open a row beside the list, or none; the filter, sort and columns stay in the address. */
export function openRow(row: Row | null, replace = false): void {
  const { page, query } = route.value;
  navigate(formatRoute(page, row ? workloadPath(row) : [], query), { replace });
}

type TableData = Parameters<typeof makeRows>[0];

function List({ data, openedId, room }: { data: TableData; openedId: string | null; room: number }) {
  const { q = "", sort: sortText, columns: columnText } = route.value.query;
  // Ages change slowly: filtering by them once a minute is enough.
  const now = Math.floor(useNow(60_000) / 60_000) * 60;
  const rows = useMemo(() => makeRows(data), [data]);
  const known = useMemo(() => findKnown(rows), [rows]);
  const parsed = useMemo(() => parseQuery(q), [q]);
  const sort = readSort(sortText, known);
  const shown = useMemo(
    () => sortRows(rows.filter(compileQuery(parsed, now)), sort),
    [rows, parsed, now, sort.column, sort.isDescending],
  );
  const columns = readColumns(columnText, room, known);
  return (
    <>
      <Toolbar rows={rows} shown={shown} columns={columns} query={q} errors={parsed.errors} />
      <Table rows={shown} total={rows.length} columns={columns} sort={sort} currency={data.currency} openedId={openedId} now={now} isFiltered={q.trim() !== ""} />
    </>
  );
}
