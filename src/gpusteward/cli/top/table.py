"""The table: columns that fit the window, rows that keep their place when they are read again."""

from collections.abc import Sequence

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from gpusteward.cli.json_access import text
from gpusteward.cli.output.formats import STYLES
from gpusteward.cli.output.terminal_text import clean, fit
from gpusteward.cli.top.source_protocol import Item
from gpusteward.cli.top.views import Cell, divide_width
from gpusteward.core.messages import Language

PADDING = 1
SCROLLBAR = 1


class ItemTable(DataTable[Text], inherit_bindings=False):
    """Shows items through cells. What it is given is text and nothing else: no name is ever read as markup."""

    def __init__(self, language: Language) -> None:
        super().__init__(cursor_type="row", cell_padding=PADDING, zebra_stripes=False, id="items")
        self._language = language
        self.items: Sequence[Item] = ()
        self._cells: Sequence[Cell] = ()
        self._sort = ""
        self._drawn: object = None

    def show(self, items: Sequence[Item], cells: Sequence[Cell], *, sort: str, keeps_place: bool = False) -> None:
        """Draw anew if anything that is seen changed; the cursor stays on its item, or goes to the first one."""
        kept = self.current_key if keeps_place and cells is self._cells else None
        self.items, self._cells, self._sort = items, cells, sort
        widths = divide_width(cells, self.size.width - 2 * PADDING * len(cells) - SCROLLBAR)
        lines = [self._write(item, widths) for item in items]
        drawn = (widths, sort, [[(cell.plain, str(cell.style)) for cell in line] for line in lines], id(cells))
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw(lines, widths, kept)

    def _draw(self, lines: Sequence[Sequence[Text]], widths: Sequence[int], kept: str | None) -> None:
        row, top = self.cursor_row, self.scroll_y
        with self.app.batch_update():
            self.clear(columns=True)
            for cell, width in zip(self._cells, widths, strict=True):
                self.add_column(self._title(cell, width), width=width)
            for line in lines:
                self.add_row(*line)
            self._return_to(kept, row, top)

    def _return_to(self, key: str | None, row: int, top: float) -> None:
        """To the same item; where that has gone, to the same place."""
        keys = [str(item.get("key", "")) for item in self.items]
        target = keys.index(key) if key in keys else 0 if key is None else min(row, len(keys) - 1)
        if keys:
            self.move_cursor(row=target, animate=False, scroll=False)
            self.scroll_to(y=0 if key is None else top + target - row, animate=False)

    def _title(self, cell: Cell, width: int) -> Text:
        title = cell.title.text(self._language).upper()
        if cell.sort and cell.sort == self._sort.removeprefix("-"):
            title += "▼" if self._sort.startswith("-") else "▲"
        return Text(fit(title, width, to_right=cell.to_right))

    def _write(self, item: Item, widths: Sequence[int]) -> list[Text]:
        return [self._write_one(item, cell, width) for cell, width in zip(self._cells, widths, strict=True)]

    def _write_one(self, item: Item, cell: Cell, width: int) -> Text:
        written = fit(clean(cell.show(item, self._language, width)), width, to_right=cell.to_right)
        return Text(written, style=STYLES.get(text(item, cell.word), "") if cell.word else "", no_wrap=True)

    @property
    def current_key(self) -> str | None:
        item = self.current
        return None if item is None else str(item.get("key", ""))

    @property
    def current(self) -> Item | None:
        """The item under the cursor."""
        return self.items[self.cursor_row] if 0 <= self.cursor_row < len(self.items) else None

    def move(self, rows: int) -> None:
        target = max(0, min(len(self.items) - 1, self.cursor_row + rows))
        self.cursor_coordinate = Coordinate(target, 0)

    @property
    def page_rows(self) -> int:
        return max(1, self.size.height - 2)
