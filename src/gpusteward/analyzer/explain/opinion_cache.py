"""Opinions by evidence, the longest unused forgotten first."""

from collections import OrderedDict

from gpusteward.analyzer.explain.answers import Opinion


class OpinionMemory:
    """A bounded cache; size 0 remembers nothing."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._opinions: OrderedDict[str, Opinion] = OrderedDict()

    def __len__(self) -> int:
        return len(self._opinions)

    def resize(self, size: int) -> None:
        self._size = size
        self._trim()

    def recall(self, fingerprint: str) -> Opinion | None:
        opinion = self._opinions.get(fingerprint)
        if opinion is not None:
            self._opinions.move_to_end(fingerprint)
        return opinion

    def remember(self, fingerprint: str, opinion: Opinion) -> None:
        self._opinions[fingerprint] = opinion
        self._opinions.move_to_end(fingerprint)
        self._trim()

    def _trim(self) -> None:
        while len(self._opinions) > self._size:
            self._opinions.popitem(last=False)
