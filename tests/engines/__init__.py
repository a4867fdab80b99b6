"""The contract of every engine: the same samples give the same usage table and the same verdicts.

Not part of `make test`: Thanos, Mimir and a current VictoriaMetrics must be built first (`make test-engines` does it).
"""
