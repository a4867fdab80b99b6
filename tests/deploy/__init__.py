"""Tests of the chart and of everything else in deploy/."""
