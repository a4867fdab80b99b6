"""Why a delivery failed, in words without secrets: an address may have a token in it, so it is never repeated."""


class DeliveryError(Exception):
    """Not delivered.

    `is_refusal`: the receiver lives but does not want this message; asking again helps only if the receiver changes.
    `wait_seconds`: how long the receiver asked to be left alone.
    """

    def __init__(self, reason: str, *, is_refusal: bool = False, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal
        self.wait_seconds = wait_seconds
