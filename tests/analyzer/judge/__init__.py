"""Tests of the rules, signatures, workload verdicts and reasons."""
