"""One word for what a workload does."""

import pytest

from gpusteward.core.verdicts import Activity, Signature, VerdictName, name_verdict

LOOKS_BUSY = {Signature.KEEP_ALIVE, Signature.STALLED, Signature.HEALTH_CHECK, Signature.NO_REQUESTS}


@pytest.mark.parametrize("signature", Signature)
def test_what_is_idle_or_unknown_is_called_that_whatever_its_signature(signature: Signature):
    assert name_verdict(Activity.IDLE, signature) is VerdictName.IDLE
    assert name_verdict(Activity.UNKNOWN, signature) is VerdictName.UNKNOWN


@pytest.mark.parametrize("signature", Signature)
def test_what_is_active_is_suspicious_only_if_it_looks_busy_and_does_no_work(signature: Signature):
    expected = VerdictName.SUSPICIOUS if signature in LOOKS_BUSY else VerdictName.ACTIVE
    assert name_verdict(Activity.ACTIVE, signature) is expected


def test_who_waits_for_data_works():
    assert name_verdict(Activity.ACTIVE, Signature.STARVED) is VerdictName.ACTIVE
