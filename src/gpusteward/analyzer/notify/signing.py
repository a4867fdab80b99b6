"""Signatures. Of a call to the control webhook, so that its receiver knows that it is ours, and new:

    Idempotency-Key: 5f0c...                     the same for every attempt at one event
    X-Gpusteward-Signature: t=1790000000,v1=9a3b...

How a receiver checks it, with the secret of `control.secret` or `control.secret_file`:

1. take `t` and `v1` from X-Gpusteward-Signature;
2. refuse when `t`, in seconds since 1970, is more than 300 s away from its own clock: an old call played back;
3. compute HMAC-SHA256 with the secret over the bytes `t`, a dot, the value of Idempotency-Key, a dot, the body as it
   came; refuse unless its hexadecimal form equals `v1`, compared in constant time;
4. when this Idempotency-Key has been acted upon before, answer 200 and do nothing: a call may come more than once, a
   repetition also after a newer event;
5. before acting look at `timestamp` in the body: after an outage events are up to `outbox.max_age_hours` old.

In Python:

    t, v1 = (part.split("=", 1)[1] for part in headers["X-Gpusteward-Signature"].split(","))
    signed = f"{t}.{headers['Idempotency-Key']}.".encode() + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    genuine = hmac.compare_digest(expected, v1) and abs(time.time() - int(t)) <= 300

Whoever adds a second way of signing appends `v2=`; receivers ignore parts that they do not know.
"""

import base64
import hashlib
import hmac

SIGNATURE_HEADER = "X-Gpusteward-Signature"
KEY_HEADER = "Idempotency-Key"


def sign(secret: str, body: bytes, *, key: str, at: float) -> str:
    """The value of the header."""
    seconds = int(at)
    signed = f"{seconds}.{key}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def sign_feishu(secret: str, *, at: float) -> dict[str, str]:
    """What a Feishu bot that checks signatures wants beside the message. It is of use for an hour.

    Feishu's own scheme: the key is the time and the secret, and nothing is signed with it. So it tells who sends, and
    not that the message is the one that was sent.
    """
    seconds = str(int(at))
    digest = hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return {"timestamp": seconds, "sign": base64.b64encode(digest).decode()}


def make_key(*parts: str) -> str:
    """A key that is the same whenever the same event is told, and says nothing about it."""
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
