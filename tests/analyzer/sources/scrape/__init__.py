"""Tests of the embedded scraper."""
