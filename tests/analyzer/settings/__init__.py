"""Tests of the settings of the analyzer."""
