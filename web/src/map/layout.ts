/** Where every tile is. Pure, and made once per data, grouping and width: drawing and hit testing only look up. */
import type { Group } from "./fleet";

export interface Size {
  readonly tileWidth: number;
  readonly tileHeight: number;
  readonly gap: number;
  readonly labelHeight: number;
  readonly groupGapX: number;
  readonly groupGapY: number;
  readonly radius: number;
}

/** From comfortable to dense. The first one that fits the height is used, the last one scrolls. */
export const SIZES: readonly Size[] = [
  { tileWidth: 42, tileHeight: 63, gap: 8, labelHeight: 26, groupGapX: 40, groupGapY: 30, radius: 8 },
  { tileWidth: 32, tileHeight: 48, gap: 6, labelHeight: 24, groupGapX: 34, groupGapY: 24, radius: 6 },
  { tileWidth: 24, tileHeight: 36, gap: 5, labelHeight: 23, groupGapX: 30, groupGapY: 20, radius: 5 },
  { tileWidth: 18, tileHeight: 27, gap: 4, labelHeight: 22, groupGapX: 28, groupGapY: 18, radius: 4 },
  { tileWidth: 15, tileHeight: 23, gap: 3.5, labelHeight: 21, groupGapX: 26, groupGapY: 16, radius: 3.5 },
  { tileWidth: 13, tileHeight: 20, gap: 3, labelHeight: 20, groupGapX: 24, groupGapY: 15, radius: 3 },
  { tileWidth: 12, tileHeight: 18, gap: 3, labelHeight: 20, groupGapX: 22, groupGapY: 13, radius: 3 },
  { tileWidth: 10, tileHeight: 15, gap: 2.5, labelHeight: 18, groupGapX: 20, groupGapY: 11, radius: 2.5 },
  { tileWidth: 8, tileHeight: 12, gap: 2, labelHeight: 16, groupGapX: 16, groupGapY: 9, radius: 2 },
  { tileWidth: 6.5, tileHeight: 10, gap: 1.5, labelHeight: 15, groupGapX: 14, groupGapY: 7, radius: 1.5 },
];

export interface Cell {
  readonly group: number;
  readonly x: number;
  readonly y: number;
  readonly columns: number;
  readonly count: number;
  readonly width: number;
  readonly height: number;
}

/** Cells of one height beside each other. */
export interface Band {
  readonly y: number;
  readonly height: number;
  readonly cells: readonly Cell[];
}

export interface Layout {
  readonly size: Size;
  readonly width: number;
  readonly height: number;
  readonly bands: readonly Band[];
}

export interface Place {
  readonly group: number;
  readonly position: number;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** GPUs of a server in one row. */
const NODE_COLUMNS = 8;

/** Larger tiles are for a few groups that still stand beside each other. */
const COMFORTABLE_WIDTH = 18;

/** The largest size at which everything fits `height`, or the densest one. */
export function fitLayout(groups: readonly Group[], width: number, height: number): Layout {
  let layout = makeLayout(groups, width, SIZES[0]!);
  for (const size of SIZES.slice(1)) {
    if (layout.height <= height && !isTooLarge(layout)) break;
    layout = makeLayout(groups, width, size);
  }
  return layout.height && layout.height < height ? makeLayout(groups, width, stretch(layout, height)) : layout;
}

function isTooLarge({ size, bands }: Layout): boolean {
  return size.tileWidth > COMFORTABLE_WIDTH && bands.length > 1 && bands[0]!.cells.length === 1;
}

/** A tile may become half as high again, which shows the parts of shared GPUs better. */
const TALLER = 0.5;
const WIDEST_GAP = 12;

/** The size with which the layout uses more of the height, without changing its columns. */
function stretch({ size, bands, height: used }: Layout, height: number): Size {
  const rows = bands.reduce((sum, band) => sum + Math.max(...band.cells.map((cell) => Math.ceil(cell.count / cell.columns))), 0);
  const spare = height - used;
  const taller = Math.min((spare * 0.6) / rows, size.tileHeight * TALLER);
  const wider = Math.min((spare - taller * rows) / Math.max(1, bands.length - 1), WIDEST_GAP);
  return { ...size, tileHeight: Math.floor(size.tileHeight + taller), groupGapY: Math.floor(size.groupGapY + wider) };
}

export function makeLayout(groups: readonly Group[], width: number, size: Size): Layout {
  const columns = chooseColumns(groups, width, size);
  const cellWidth = widthOf(columns, size);
  const perBand = Math.max(1, Math.floor((width + size.groupGapX) / (cellWidth + size.groupGapX)));
  // Spread over the whole width, so that the right edge of the panel is not ragged.
  const pitch = perBand > 1 ? (width - cellWidth) / (perBand - 1) : 0;
  const bands: Band[] = [];
  let y = 0;
  for (let first = 0; first < groups.length; first += perBand) {
    const cells = groups.slice(first, first + perBand).map((group, index) => {
      const rows = Math.ceil(group.members.length / columns);
      const height = size.labelHeight + rows * (size.tileHeight + size.gap) - size.gap;
      return { group: first + index, x: Math.floor(index * pitch), y, columns, count: group.members.length, width: cellWidth, height };
    });
    const height = Math.max(...cells.map((cell) => cell.height));
    bands.push({ y, height, cells });
    y += height + size.groupGapY;
  }
  return { size, width, height: Math.max(0, y - size.groupGapY), bands };
}

function widthOf(columns: number, size: Size): number {
  return columns * (size.tileWidth + size.gap) - size.gap;
}

/** Servers have eight; larger groups are blocks about four times as wide as high that fill the width together. */
function chooseColumns(groups: readonly Group[], width: number, size: Size): number {
  const pitch = size.tileWidth + size.gap;
  const most = Math.max(1, Math.floor((width + size.gap) / pitch));
  const sizes = groups.map((group) => group.members.length).sort((a, b) => a - b);
  const typical = sizes[Math.floor(sizes.length * 0.75)] ?? 0;
  if (typical <= 2 * NODE_COLUMNS) return Math.min(NODE_COLUMNS, most);
  const wanted = widthOf(Math.ceil(Math.sqrt(typical * 4)), size);
  const blocks = Math.max(1, Math.min(groups.length, Math.round((width + size.groupGapX) / (wanted + size.groupGapX))));
  const block = (width - (blocks - 1) * size.groupGapX) / blocks;
  return Math.max(1, Math.floor((block + size.gap) / pitch));
}

export function tileBox(layout: Layout, cell: Cell, position: number): Box {
  const { tileWidth, tileHeight, gap, labelHeight } = layout.size;
  return {
    x: cell.x + (position % cell.columns) * (tileWidth + gap),
    y: cell.y + labelHeight + Math.floor(position / cell.columns) * (tileHeight + gap),
    width: tileWidth,
    height: tileHeight,
  };
}

/** The range of bands that touches [top, bottom). */
export function visibleBands(layout: Layout, top: number, bottom: number): readonly Band[] {
  const { bands } = layout;
  const first = firstIndex(bands, (band) => band.y + band.height > top);
  const last = firstIndex(bands, (band) => band.y >= bottom);
  return bands.slice(first, last);
}

function firstIndex(bands: readonly Band[], isAtOrAfter: (band: Band) => boolean): number {
  let low = 0;
  let high = bands.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isAtOrAfter(bands[middle]!)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The tile at a point; the gap around a tile belongs to it, so that the pointer does not flicker between two. */
export function findTile(layout: Layout, x: number, y: number): (Place & { readonly cell: Cell }) | null {
  const { tileWidth, tileHeight, gap, labelHeight } = layout.size;
  const band = visibleBands(layout, y, y + 1)[0];
  const cell = band?.cells.find((each) => x >= each.x - gap / 2 && x < each.x + each.width + gap / 2);
  if (!cell) return null;
  const column = Math.floor((x - cell.x + gap / 2) / (tileWidth + gap));
  const row = Math.floor((y - cell.y - labelHeight + gap / 2) / (tileHeight + gap));
  const position = row * cell.columns + column;
  if (row < 0 || column < 0 || column >= cell.columns || position >= cell.count) return null;
  return { group: cell.group, position, cell };
}

export function findCell(layout: Layout, group: number): Cell | undefined {
  const perBand = layout.bands[0]?.cells.length ?? 1;
  return layout.bands[Math.floor(group / perBand)]?.cells[group % perBand];
}

/** The tile that an arrow key leads to: along the row into the next group, up and down to the nearest tile. */
export function moveTile(layout: Layout, from: Place, key: string): Place {
  const cell = findCell(layout, from.group);
  if (!cell) return from;
  if (key === "ArrowRight" || key === "ArrowLeft") return stepTile(layout, from, key === "ArrowRight" ? 1 : -1);
  const box = tileBox(layout, cell, from.position);
  const step = (key === "ArrowDown" ? 1 : -1) * (layout.size.tileHeight + layout.size.gap);
  const x = box.x + box.width / 2;
  for (let y = box.y + box.height / 2 + step; y >= 0 && y < layout.height; y += step / 2) {
    const found = findTile(layout, x, y);
    if (found && (found.group !== from.group || found.position !== from.position)) return { group: found.group, position: found.position };
  }
  return from;
}

function stepTile(layout: Layout, from: Place, step: number): Place {
  const cell = findCell(layout, from.group)!;
  const position = from.position + step;
  if (position >= 0 && position < cell.count) return { group: from.group, position };
  const next = findCell(layout, from.group + step);
  if (!next || from.group + step < 0) return from;
  return { group: from.group + step, position: step > 0 ? 0 : next.count - 1 };
}
