"""What Grafana does with a dashboard: it fills in the variables and queries Prometheus. No Grafana server can be
installed from a package registry, so this follows its documentation.

grafana = Grafana(prometheus.url, dashboard, at=...)
grafana.variables["node"]       # all options
grafana.choose(node=["a", "b"]) # otherwise All
grafana.run(panel)              # the results of its queries
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Series = Json

RANGE_SECONDS, STEP_SECONDS = 900, 60
BUILT_IN = {
    "__rate_interval": "4m",
    "__range": f"{RANGE_SECONDS}s",
    "__range_s": str(RANGE_SECONDS),
    "__interval": "60s",
}
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_SPECIAL = re.compile(r"[\\^$*+?.()|\[\]{}/]")
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)")


def list_panels(dashboard: Json) -> Iterator[Json]:
    """All panels but rows."""
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


@dataclass
class Grafana:
    """One dashboard on one Prometheus, at one time."""

    url: str
    dashboard: Json
    at: float
    chosen: dict[str, Sequence[str]] = field(default_factory=dict)
    variables: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.choose()

    def choose(self, **chosen: Sequence[str]) -> None:
        """Choose values of variables, and read the options of all of them, in order."""
        self.chosen = dict(chosen)
        for variable in self.dashboard["templating"]["list"]:
            if variable["type"] == "query":
                self.variables[variable["name"]] = self._read_options(variable)

    def _read_options(self, variable: Json) -> list[str]:
        query = self.substitute(variable["query"]["query"])
        if found := _LABEL_VALUES.fullmatch(query):
            match, label = found.groups()
            return sorted(self._get(f"label/{label}/values", {"match[]": match, **self._span()}))
        found = _QUERY_RESULT.fullmatch(query)
        assert found, query
        results = self.query(found[1])
        texts = ["{" + ", ".join(f'{k}="{v}"' for k, v in each["metric"].items()) + "} 1 2" for each in results]
        pattern = re.compile(variable["regex"].strip("/"))
        return sorted({match[1] for text in texts if (match := pattern.search(text))})

    def substitute(self, text: str) -> str:
        """With the values of all variables."""
        return _VARIABLE.sub(lambda match: self._value(match[1] or match[2], match[0]), text)

    def _value(self, name: str, original: str) -> str:
        if name in BUILT_IN:
            return BUILT_IN[name]
        found = [each for each in self.dashboard["templating"]["list"] if each["name"] == name]
        if not found:
            return original  # such as "$1" of label_replace
        (variable,) = found
        if variable["type"] != "query":
            return str(variable.get("current", {}).get("value", original))
        if name in self.chosen:
            return _join(self.chosen[name])
        options = self.variables.get(name, [])
        if not variable["includeAll"]:
            return _join(options[:1])
        return variable.get("allValue") or _join(options)

    def run(self, panel: Json) -> Iterator[tuple[str, list[Series]]]:
        """Each query of the panel with its results."""
        for target in panel["targets"]:
            expression = self.substitute(target["expr"])
            yield expression, self.query(expression) if target.get("instant") else self._query_range(expression)

    def query(self, expression: str) -> list[Series]:
        return self._get("query", {"query": expression, "time": self.at})["result"]

    def _query_range(self, expression: str) -> list[Series]:
        return self._get("query_range", {"query": expression, **self._span(), "step": STEP_SECONDS})["result"]

    def _span(self) -> Mapping[str, float]:
        return {"start": self.at - RANGE_SECONDS, "end": self.at}

    def _get(self, path: str, parameters: Mapping[str, object]) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None


def _join(values: Sequence[str]) -> str:
    """As for a regular expression in PromQL."""
    escaped = [_SPECIAL.sub(lambda match: "\\\\" + match[0], value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def last_values(series: Sequence[Series]) -> list[float]:
    """The last value of each series."""
    return [float((each["values"][-1] if "values" in each else each["value"])[1]) for each in series]
