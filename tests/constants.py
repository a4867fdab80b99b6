"""Sections of settings whose constants have other values, for tests that cannot wait for those of the product."""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

Section = TypeVar("Section", bound=BaseModel)


def make_settings(section: type[Section], **values: Any) -> Section:
    """The section with these values; those that are not settings but constants of the class are set in a subclass."""
    constants = {name: value for name, value in values.items() if name not in section.model_fields}
    unknown = [name for name in constants if not hasattr(section, name)]
    if unknown:
        raise TypeError(f"{section.__name__} has no {', '.join(unknown)}")
    body = {"__module__": section.__module__, "__annotations__": dict.fromkeys(constants, ClassVar[Any]), **constants}
    changed = type(section.__name__, (section,), body) if constants else section
    return changed.model_validate({name: value for name, value in values.items() if name not in constants})
