"""Tests of the second opinion: prompts, budget, failures, and what an opinion may change."""
