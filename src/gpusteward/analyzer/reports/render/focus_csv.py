"""Charges as CSV with the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

Columns of FOCUS come first, in the order of the specification; columns of our own begin with `x_`. `EffectiveCost` is a
word of FOCUS, for cost after discounts: what was effective is `x_Active...` less `x_Ineffective...`. An empty cell is
null. Costs and seconds are exact: they add up to those of a report. Quantities in hours and unit prices are rounded.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.render.csv_text import escape_cell, format_micros
from gpusteward.analyzer.reports.report import Charge

VERSION = "1.2"
ISSUER = "gpusteward"
HOURS, SECONDS = "GPU-Hours", "GPU-Seconds"
COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"),
    *("ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost"),
    *("ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "ResourceId", "ResourceName"),
    *("ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId"),
    *("SubAccountId", "SubAccountName", "SubAccountType", "Tags"),
    *("x_ActiveCost", "x_IdleCost", "x_UnknownCost", "x_UnallocatedCost"),
    *("x_ActiveGpuSeconds", "x_IdleGpuSeconds", "x_UnknownGpuSeconds", "x_UnallocatedGpuSeconds"),
    *("x_UnpricedGpuSeconds", "x_IsPartial", "x_Team", "x_UserName", "x_WorkloadKind", "x_WorkloadName"),
    *("x_PodName", "x_PodUid", "x_ContainerName", "x_Cluster", "x_NodeName", "x_Share"),
    *("x_IneffectiveCost", "x_IneffectiveGpuSeconds"),
)
_FIXED: Mapping[str, str] = {
    "BillingAccountId": ISSUER,
    "BillingAccountName": ISSUER,
    "ChargeCategory": "Usage",
    "ChargeFrequency": "Usage-Based",
    "ConsumedUnit": SECONDS,
    "InvoiceIssuerName": ISSUER,
    "PricingCategory": "Standard",
    "PricingUnit": HOURS,
    "ProviderName": ISSUER,
    "PublisherName": ISSUER,
    "ServiceCategory": "Compute",
    "ServiceName": "GPU",
    "ServiceSubcategory": "Containers",
    "SkuMeter": "GPU time",
}
_HOUR_MS = 3_600_000
_FLUSH_BYTES = 1 << 16


def write_focus(charges: Iterable[Charge]) -> Iterator[str]:
    """The text in pieces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180
    writer.writerow(COLUMNS)
    for charge in charges:
        cells = {**_FIXED, **_list_cells(charge)}
        writer.writerow([escape_cell(cells.get(name)) for name in COLUMNS])
        if out.tell() >= _FLUSH_BYTES:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _list_cells(charge: Charge) -> dict[str, object]:
    """None is null."""
    begin, end = _month_of(charge.period.begin_ms)
    names = {name: text or None for name, text in charge.names.items()}
    return {
        "BillingCurrency": charge.currency,
        "BillingPeriodStart": begin,
        "BillingPeriodEnd": end,
        "ChargePeriodStart": quantities.iso(charge.period.begin_ms),
        "ChargePeriodEnd": quantities.iso(charge.period.end_ms),
        "ChargeDescription": _describe(charge),
        "SkuId": names["model"],
        "SkuPriceId": names["model"],
        "x_IsPartial": str(charge.period.is_partial).lower(),
        "x_Cluster": names["cluster"],
        "x_NodeName": names["node"],
        **_list_amounts(charge),
        **(_list_names(names, charge.team) if charge.unallocated_ms is None else {}),
    }


def _list_amounts(charge: Charge) -> dict[str, object]:
    cost = format_micros(charge.cost)
    amounts: dict[str, object] = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost"), cost),
        "ListCost": format_micros(charge.list_cost),
        "ContractedUnitPrice": format_micros(charge.prices.contracted),
        "ListUnitPrice": format_micros(charge.prices.listed),
        "ConsumedQuantity": _seconds(charge.allocated_ms),
        "PricingQuantity": f"{charge.allocated_ms / _HOUR_MS:.9f}",
    }
    if charge.unallocated_ms is None:
        for name in ("active", "idle", "unknown"):
            amounts[f"x_{name.title()}Cost"] = format_micros(charge.costs[f"{name}_cost"])
            amounts[f"x_{name.title()}GpuSeconds"] = _seconds(charge.times[f"{name}_ms"])
        amounts["x_IneffectiveCost"] = format_micros(charge.ineffective_cost)
        amounts["x_IneffectiveGpuSeconds"] = _seconds(charge.times["ineffective_ms"])
        amounts["x_UnpricedGpuSeconds"] = _seconds(charge.unpriced_ms)
    else:
        amounts["x_UnallocatedCost"] = format_micros(charge.unallocated_cost)
        amounts["x_UnallocatedGpuSeconds"] = _seconds(charge.unallocated_ms)
    return amounts


def _list_names(names: Mapping[str, str | None], team: str) -> dict[str, object]:
    gpu = (names["gpu_uuid"], names["gpu_instance"])
    place = (names["node"], names["gpu_index"])
    return {
        "ResourceId": "/".join(filter(None, gpu)) or None,
        "ResourceName": "/".join(filter(None, place)) or None,
        "ResourceType": "MIG instance" if names["gpu_instance"] else "GPU",
        "SubAccountId": "/".join(filter(None, (names["cluster"], names["namespace"]))) or None,
        "SubAccountName": names["namespace"],
        "SubAccountType": "Namespace",
        "Tags": names["labels"],
        "x_Team": team or None,
        "x_UserName": names["user_name"],
        "x_WorkloadKind": names["owner_kind"],
        "x_WorkloadName": names["owner_name"],
        "x_PodName": names["pod"],
        "x_PodUid": names["pod_uid"],
        "x_ContainerName": names["container"],
        "x_Share": names["share"],
    }


def _describe(charge: Charge) -> str:
    names = charge.names
    if charge.unallocated_ms is not None:
        return f"Unallocated GPU time, {names['model']}"
    return f"GPU time of {names['namespace']}/{names['owner_kind']}/{names['owner_name']}, {names['model']}"


def _seconds(gpu_ms: int) -> str:
    """Exact: three decimals."""
    return f"{gpu_ms // 1000}.{gpu_ms % 1000:03d}"


def _month_of(at_ms: int) -> tuple[str, str]:
    """Begin and end of the month (UTC), which is the billing period."""
    begin = datetime.fromtimestamp(at_ms / 1000, tz=UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return quantities.iso(int(begin.timestamp() * 1000)), quantities.iso(int(end.timestamp() * 1000))
