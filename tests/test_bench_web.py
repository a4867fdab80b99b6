"""The pure parts of the bench of the web UI: sizes of the bundle, limits, rendering."""

import json
from pathlib import Path

from bench.web import Frames, Hour, Load, Results, collect_chunk, judge, measure_bundle, render

RESULTS = Results(
    chunks={"index.html": 400, "assets/a.js": 39_600},
    total_bytes=90_000,
    loads=[Load(100, [200.0, 300.0, 250.0], 9_000, 5_000), Load(10_000, [900.0, 1500.0, 1200.0], 90_000, 300_000)],
    frames=[
        Frames("map, scrolling", 10_000, [16.0] * 30),
        Frames("map, scrolling during an update", 10_000, [16.0, 90.0] * 15),
    ],
    hours=[Hour("overview", 1_000, [10, 10, 10, 10, 10, 12])],
)


def test_the_first_load_is_the_entry_the_first_page_and_what_both_import(tmp_path: Path):
    manifest = {
        "index.html": {"file": "i.js", "css": ["i.css"], "imports": ["_shared.js"], "dynamicImports": ["other"]},
        "_shared.js": {"file": "s.js"},
        "src/pages/overview/overview.tsx": {"file": "o.js", "imports": ["index.html", "_shared.js"]},
        "other": {"file": "other.js"},
    }
    for name in ("i.js", "i.css", "s.js", "o.js", "other.js", "index.html", "theme.js"):
        (tmp_path / name).write_text("x" * 100)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert collect_chunk(manifest, "src/pages/overview/overview.tsx") == {"o.js", "i.js", "i.css", "s.js"}
    chunks, total = measure_bundle(tmp_path)
    assert set(chunks) == {"index.html", "theme.js", "i.js", "i.css", "s.js", "o.js"}
    assert total > sum(chunks.values())


def test_every_limit_is_compared_with_what_was_measured():
    verdicts = {bar.promise: bar.verdict for bar in judge(RESULTS)}
    assert verdicts == {
        "first load": "PASS",
        "first verdict at 100 GPUs": "PASS",
        "first verdict at 10,000 GPUs": "MISSED",
        "map, scrolling, 10,000 GPUs": "PASS",
        "memory of overview stays flat": "MISSED",
    }


def test_the_page_has_raw_results_and_how_they_were_made():
    page = render(RESULTS)
    assert "Made by `python -m bench.web`" in page
    for part in ("40", "90.0 kB gzip", "1200", "300.0", "map, scrolling during an update", "+10.0%"):
        assert part in page
