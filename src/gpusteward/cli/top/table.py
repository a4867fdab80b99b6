"""The table of a view: columns that fit the width; the cursor stays on its row after a refresh."""

from collections.abc import Sequence

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from gpusteward.cli.json_access import get_text
from gpusteward.cli.output.formats import STYLES
from gpusteward.cli.output.terminal_text import clean, fit
from gpusteward.cli.top.source_protocol import Item
from gpusteward.cli.top.views import ViewColumn, choose_columns, divide_width
from gpusteward.core.messages import Language

PADDING = 1
SCROLLBAR = 1


class ItemTable(DataTable[Text], inherit_bindings=False):
    """Rows of items. Cells are plain text: names are never interpreted as markup."""

    def __init__(self, language: Language) -> None:
        super().__init__(cursor_type="row", cell_padding=PADDING, zebra_stripes=False, id="items")
        self._language = language
        self.items: Sequence[Item] = ()
        self._all_columns: Sequence[ViewColumn] = ()
        self._columns: Sequence[ViewColumn] = ()  # those that are shown
        self._sort = ""
        self._drawn: object = None

    def show(
        self, items: Sequence[Item], columns: Sequence[ViewColumn], *, sort: str, keeps_cursor: bool = False
    ) -> None:
        """Draw again if anything visible has changed. The cursor stays on its item, or goes to the first one."""
        kept = self.current_key if keeps_cursor and columns is self._all_columns else None
        self.items, self._all_columns, self._sort = items, columns, sort
        self._columns = choose_columns(columns, self.size.width)
        widths = divide_width(self._columns, self.size.width - 2 * PADDING * len(self._columns) - SCROLLBAR)
        lines = [self._write(item, widths) for item in items]
        drawn = (widths, sort, [[(cell.plain, str(cell.style)) for cell in line] for line in lines], id(columns))
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw(lines, widths, kept)

    def _draw(self, lines: Sequence[Sequence[Text]], widths: Sequence[int], kept: str | None) -> None:
        row, top = self.cursor_row, self.scroll_y
        with self.app.batch_update():
            self.clear(columns=True)
            for column, width in zip(self._columns, widths, strict=True):
                self.add_column(self._title(column, width), width=width)
            for line in lines:
                self.add_row(*line)
            self._return_to(kept, row, top)

    def _return_to(self, key: str | None, row: int, top: float) -> None:
        """To the same item, or to the same position if it no longer exists."""
        keys = [str(item.get("key", "")) for item in self.items]
        target = keys.index(key) if key in keys else 0 if key is None else min(row, len(keys) - 1)
        if keys:
            self.move_cursor(row=target, animate=False, scroll=False)
            self.scroll_to(y=0 if key is None else top + target - row, animate=False)

    def _title(self, column: ViewColumn, width: int) -> Text:
        title = column.title.text(self._language).upper()
        if column.sort and column.sort == self._sort.removeprefix("-"):
            title += "▼" if self._sort.startswith("-") else "▲"
        return Text(fit(title, width, to_right=column.to_right))

    def _write(self, item: Item, widths: Sequence[int]) -> list[Text]:
        return [self._write_cell(item, column, width) for column, width in zip(self._columns, widths, strict=True)]

    def _write_cell(self, item: Item, column: ViewColumn, width: int) -> Text:
        written = fit(clean(column.show(item, self._language, width)), width, to_right=column.to_right)
        return Text(written, style=STYLES.get(get_text(item, column.word), "") if column.word else "", no_wrap=True)

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
