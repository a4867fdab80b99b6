"""Checks of single values: each takes what a person wrote and raises ValueError with what is allowed."""

import re

_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:/\s]*)):)?(?P<port>[0-9]{1,5})")
_URL = re.compile(r"https?://[^\s/?#]+(?:[/?#]\S*)?")
_CREDENTIALS = re.compile(r"(?<=//)[^/?#\s]*@|(?<=//)[^/?#\s@\[]*:(?!\d*(?:[/?#\s'\"]|$))\S*@")
"""All before the last @ of the authority; the second half is a password with a slash that nobody escaped."""
_PARAMETER = re.compile(r"(?<=[?&])([^=&#\s'\"]+)=[^&#\s'\"]+")
_LEVELS = {"warn": "warning", "critical": "error", "fatal": "error"}  # other programs' words
MASK = "**********"


def check_address(text: str) -> str:
    split_address(text)
    return text.strip()


def split_address(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError("write PORT, :PORT, HOST:PORT or [IPV6]:PORT, with a port up to 65535")
    return match["six"] or match["host"] or "", int(match["port"])


def check_url(text: str) -> str:
    """Empty stays empty: not set."""
    if text.strip() and not _URL.fullmatch(text.strip()):
        raise ValueError("write a URL: http://HOST:PORT/PATH or https://HOST/PATH")
    return text.strip()


def check_level(value: object) -> object:
    if not isinstance(value, str):
        return value
    level = value.strip().lower()
    return _LEVELS.get(level, level)


def mask_password(text: str) -> str:
    """A URL without its credentials, of which the user may be a token, and without the values of its parameters."""
    return _PARAMETER.sub(rf"\1={MASK}", _CREDENTIALS.sub(f"{MASK}@", text))
