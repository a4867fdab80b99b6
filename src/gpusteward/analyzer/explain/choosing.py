"""Which allocations are worth the price of a question."""

import numpy as np

from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, VerdictTable
from gpusteward.core.verdicts import Activity, Signature

SUSPICIOUS = tuple(signature for signature in Signature if signature.is_suspicious)


def rows_worth_asking(verdicts: VerdictTable, *, limit: int) -> list[int]:
    """Idle or suspicious rows: the suspicious first, then those idle the longest."""
    suspicious = np.isin(verdicts.signature, [SIGNATURES.index(signature) for signature in SUSPICIOUS])
    idle = verdicts.activity == ACTIVITIES.index(Activity.IDLE)
    rows = np.flatnonzero(idle | suspicious)
    since = np.nan_to_num(verdicts.idle_since[rows], nan=np.inf)
    order = np.lexsort((since, ~suspicious[rows]))
    return [int(row) for row in rows[order[:limit]]]
