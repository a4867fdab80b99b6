"""Why a delivery failed. The text never contains an address: addresses may contain tokens."""


class DeliveryError(Exception):
    """The receiver did not accept the message.

    `is_refusal`: the receiver works but rejects this message; retrying helps only after the receiver has changed.
    `wait_seconds`: the delay before the next attempt that the receiver requested (Retry-After).
    """

    def __init__(self, reason: str, *, is_refusal: bool = False, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal
        self.wait_seconds = wait_seconds
