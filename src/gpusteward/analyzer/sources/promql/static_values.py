"""What stays: the memory of a device and its power limit. Asked when a site is learned, and when a device shows up that
was not there then; in between, the answers of last time hold."""

from gpusteward.analyzer.sources.engine.text_keys import TextKeys
from gpusteward.analyzer.sources.promql.plan import SidePlan
from gpusteward.analyzer.sources.promql.query_runner import Gathered
from gpusteward.analyzer.sources.usage.quantities import Asked, Level
from gpusteward.analyzer.tables import Column


class Lasting:
    """The last answers, by row of the same keys."""

    def __init__(self) -> None:
        self._columns: dict[Asked, Column] = {}
        self._holders = 0  # rows that were there when it was asked
        self._devices = 0
        self.is_due = True

    def expire(self) -> None:
        """Ask again; what nobody answers then is remembered still."""
        self.is_due = True

    def has_newcomers(self, gathered: Gathered) -> bool:
        """Whether there is a device that nobody was asked about. One that did not answer is not asked for again."""
        devices, new = gathered.devices, gathered.holders.all[self._holders :]
        return len(devices) > self._devices or bool((devices.locate([key[:2] for key in new]) < 0).any())

    def recall(self, gathered: Gathered) -> None:
        """Give the answers of earlier where there is none now."""
        for asked, column in self._columns.items():
            gathered.recall(asked, column)

    def keep(self, gathered: Gathered, devices: TextKeys, plans: list[SidePlan]) -> None:
        """Remember what was answered; what failed is asked for again."""
        lasting = {query.asked for plan in plans for query in plan.queries if query.is_lasting}
        self._columns = {asked: gathered.column(*asked) for asked in lasting if gathered.has(*asked)}
        self._holders, self._devices = len(gathered.holders), len(gathered.devices)
        of_devices = [query for plan in plans for query in plan.queries if query.level is Level.DEVICE]
        if all(query.is_lasting for query in of_devices):
            devices.settle(gathered.holders)
        self.is_due = not lasting.isdisjoint(gathered.failures)
