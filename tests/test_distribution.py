"""The files that are named for the distribution exist."""

import pytest

from tests.distribution import LONGEST, TOGETHER
from tests.documents import ROOT


@pytest.mark.parametrize("file", sorted({*LONGEST, *TOGETHER, *TOGETHER.values()}))
def test_a_file_that_is_named_exists(file: str):
    assert (ROOT / file).is_file()
