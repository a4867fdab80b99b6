/** Draws the tiles in view. A refresh repaints only tiles whose parts changed; the pointer repaints nothing. */
import { type Group, KINDS, type Kind, makeParts, type MapData, type Part } from "./fleet";
import { type Box, type Cell, type Layout, tileBox, visibleBands } from "./layout";

export interface Palette {
  readonly active: string;
  readonly suspicious: string;
  readonly idle: string;
  readonly unknown: string;
  readonly "unknown-soft": string;
  readonly free: string;
  readonly line: string;
  readonly secondary: string;
}

export const PALETTE_NAMES: readonly (keyof Palette)[] = ["active", "suspicious", "idle", "unknown", "unknown-soft", "free", "line", "secondary"];

/** What is drawn: data, its groups and where they are. */
export interface Scene {
  readonly data: MapData;
  readonly groups: readonly Group[];
  readonly layout: Layout;
}

/** The parts of every tile that was looked at; a new one is made for new data. */
export class PartsCache {
  private readonly parts = new Map<number, Part[]>();

  constructor(readonly data: MapData) {}

  get(gpu: number, namespace: number): Part[] {
    const key = gpu * (this.data.namespaces.length + 1) + namespace + 1;
    let parts = this.parts.get(key);
    if (!parts) this.parts.set(key, (parts = makeParts(this.data, gpu, namespace)));
    return parts;
  }
}

/** Two tiles with the same code look the same. */
export function codeOf(parts: readonly Part[]): string {
  return parts.map((part) => `${part.kind[0]}${Math.round(part.to * 100)}`).join("");
}

/** Between two parts; the thin parts of a GPU with many holders need more of the tile. */
const gapOf = (parts: number): number => (parts > 4 ? 1 : 1.5);

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private hatch: CanvasPattern | null = null;
  private ratio = 1;
  private drawn = new Map<string, string>();
  private scene: Scene | null = null;
  private top = 0;
  private labels = new Map<string, string>();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly font: string,
  ) {
    this.context = canvas.getContext("2d")!;
  }

  /** Adapt to the size, the pixel ratio and the colours; afterwards everything must be drawn. */
  prepare(width: number, height: number, ratio: number, palette: Palette): void {
    this.ratio = ratio;
    this.palette = palette;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.hatch = makeHatch(this.context, palette, ratio);
    this.scene = null;
    this.labels.clear();
  }

  private palette: Palette | null = null;

  /** Draw what is in view; when only data changed, only the tiles that changed. Returns how many tiles were drawn. */
  draw(scene: Scene, parts: PartsCache, top: number): number {
    const isSamePlace = this.scene?.layout === scene.layout && this.scene.groups.length === scene.groups.length && this.top === top;
    const tiles = isSamePlace ? this.findChanged(scene, parts, top) : this.startOver(scene, parts, top);
    this.scene = scene;
    this.top = top;
    this.fill(tiles);
    return tiles.length;
  }

  private startOver(scene: Scene, parts: PartsCache, top: number): Tile[] {
    const { context, ratio } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(ratio, 0, 0, ratio, 0, -top * ratio);
    this.drawLabels(scene, top);
    const tiles = [...this.visibleTiles(scene, parts, top)];
    this.drawn = new Map(tiles.map((tile) => [tile.key, tile.code]));
    return tiles;
  }

  private findChanged(scene: Scene, parts: PartsCache, top: number): Tile[] {
    const changed: Tile[] = [];
    for (const tile of this.visibleTiles(scene, parts, top)) {
      if (this.drawn.get(tile.key) === tile.code) continue;
      this.context.clearRect(tile.box.x - 1, tile.box.y - 1, tile.box.width + 2, tile.box.height + 2);
      this.drawn.set(tile.key, tile.code);
      changed.push(tile);
    }
    return changed;
  }

  private *visibleTiles(scene: Scene, parts: PartsCache, top: number): Generator<Tile> {
    const bottom = top + this.canvas.height / this.ratio;
    for (const band of visibleBands(scene.layout, top, bottom)) {
      for (const cell of band.cells) yield* this.tilesOf(scene, parts, cell, top, bottom);
    }
  }

  private *tilesOf(scene: Scene, parts: PartsCache, cell: Cell, top: number, bottom: number): Generator<Tile> {
    const group = scene.groups[cell.group]!;
    const { labelHeight, tileHeight, gap } = scene.layout.size;
    const pitch = tileHeight + gap;
    const first = Math.max(0, Math.floor((top - cell.y - labelHeight) / pitch)) * cell.columns;
    const last = Math.min(cell.count, (Math.floor((bottom - cell.y - labelHeight) / pitch) + 1) * cell.columns);
    for (let position = first; position < last; position++) {
      const shown = parts.get(group.members[position]!, group.namespace);
      yield { key: `${cell.group}.${position}`, box: tileBox(scene.layout, cell, position), parts: shown, code: codeOf(shown), radius: scene.layout.size.radius };
    }
  }

  /** One path per kind: the number of fills does not grow with the number of tiles. */
  private fill(tiles: readonly Tile[]): void {
    const paths = Object.fromEntries(KINDS.map((kind) => [kind, new Path2D()])) as Record<Kind, Path2D>;
    for (const tile of tiles) addTile(paths, tile);
    const { context, palette } = this;
    if (!palette) return;
    context.fillStyle = palette.active;
    context.fill(paths.active);
    context.fillStyle = palette.suspicious;
    context.fill(paths.suspicious);
    context.fillStyle = palette.idle;
    context.fill(paths.idle);
    context.fillStyle = palette["unknown-soft"];
    context.fill(paths.unknown);
    if (this.hatch) context.fillStyle = this.hatch;
    context.fill(paths.unknown);
    context.fillStyle = palette.line;
    context.fill(paths.other);
    context.strokeStyle = palette.free;
    context.lineWidth = 1.25;
    context.stroke(paths.free);
  }

  private drawLabels(scene: Scene, top: number): void {
    const { context } = this;
    const bottom = top + this.canvas.height / this.ratio;
    context.font = `${scene.layout.size.labelHeight > 17 ? 11 : 10}px ${this.font}`;
    context.fillStyle = this.palette?.secondary ?? "";
    context.textBaseline = "alphabetic";
    for (const band of visibleBands(scene.layout, top, bottom)) {
      for (const cell of band.cells) {
        const label = this.shorten(scene.groups[cell.group]!.label, cell.width + scene.layout.size.groupGapX - 8);
        context.fillText(label, cell.x, cell.y + scene.layout.size.labelHeight - 7);
      }
    }
  }

  /** The text with an ellipsis in its middle, because the end of a node's name tells it apart. */
  private shorten(text: string, width: number): string {
    const key = `${width}|${text}`;
    const known = this.labels.get(key);
    if (known !== undefined) return known;
    let shown = text;
    for (let cut = 1; cut < text.length && this.context.measureText(shown).width > width; cut++) {
      const keep = text.length - cut;
      shown = `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(text.length - Math.floor(keep / 2))}`;
    }
    this.labels.set(key, shown);
    return shown;
  }
}

interface Tile {
  readonly key: string;
  readonly box: Box;
  readonly parts: readonly Part[];
  readonly code: string;
  readonly radius: number;
}

function addTile(paths: Record<Kind, Path2D>, { box, parts, radius }: Tile): void {
  const last = parts.length - 1;
  const gap = gapOf(parts.length);
  parts.forEach((part, index) => {
    const top = box.y + part.from * box.height + (index > 0 ? gap / 2 : 0);
    const bottom = box.y + part.to * box.height - (index < last ? gap / 2 : 0);
    const inset = part.kind === "free" ? 0.65 : 0;
    const upper = index === 0 ? radius : 1;
    const lower = index === last ? radius : 1;
    paths[part.kind].roundRect(
      box.x + inset, top + inset, box.width - 2 * inset, Math.max(1, bottom - top - 2 * inset), [upper, upper, lower, lower],
    );
  });
}

/** Diagonal stripes in device pixels, so that they stay sharp. */
function makeHatch(context: CanvasRenderingContext2D, palette: Palette, ratio: number): CanvasPattern | null {
  const side = Math.round(5 * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const stripes = tile.getContext("2d")!;
  stripes.strokeStyle = palette.unknown;
  stripes.lineWidth = side * 0.36;
  for (const shift of [-side, 0, side]) {
    stripes.beginPath();
    stripes.moveTo(shift, side);
    stripes.lineTo(shift + side, 0);
    stripes.stroke();
  }
  const pattern = context.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
