"""Numbers of GPUs as people read them. A share of a GPU is a fraction."""

_WHOLE_FROM = 100.0
_TENTHS_FROM = 10.0
_SMALLEST = 0.005


def format_gpus(count: float) -> str:
    """`2`, `0.5`, `0.14`, `51.3`, `1024`: as many digits as matter; a share is never printed as 0."""
    if 0 < count < _SMALLEST:
        return "<0.01"
    digits = 0 if count >= _WHOLE_FROM else 1 if count >= _TENTHS_FROM else 2
    text = f"{count:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
