"""Keep the visible GPUs busy for a share of the time, with matrix products: python gpu_load.py --share 80 --minutes 5

Needs PyTorch with CUDA. load.yaml runs it in a pod.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence

CHUNK_SECONDS = 0.02
"""How long a piece of work takes: far below the second over which the driver averages the utilization."""
SHORTEST_SLEEP_SECONDS = 0.0001
REPORT_SECONDS = 30.0
SIZE = 4096  # of the matrices: large enough to fill any GPU, 32 MiB each in half precision

Work = Callable[[], None]
Clock = Callable[[], float]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Keep the visible GPUs busy for a share of the time.")
    parser.add_argument("--share", type=number_between(1, 100), default=80.0, help="percent of the time (default 80)")
    parser.add_argument("--minutes", type=number_between(0.01, 1440), default=5.0, help="duration (default 5)")
    parser.add_argument(
        "--memory-gib", type=number_between(0, 1024), default=0.0, help="memory to hold beside, per GPU"
    )
    parser.add_argument(
        "--precision", choices=("half", "single"), default="half", help="half uses Tensor Cores, single does not"
    )
    return parser.parse_args(arguments)


def number_between(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        number = float(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least:g} to {most:g}")
        return number

    return read


def keep_busy(
    work: Work,
    *,
    share: float,
    seconds: float,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    report: Callable[[float, float], None] = lambda *_: None,
) -> float:
    """Work whenever the busy time is below the share of the elapsed time; the busy share in the end."""
    start = reported = clock()
    busy = elapsed = 0.0
    while elapsed < seconds:
        pause = min(busy / share, seconds) - elapsed  # until the next piece of work is due
        if pause < SHORTEST_SLEEP_SECONDS:
            began = clock()
            work()
            busy += clock() - began
        else:
            sleep(pause)
        now = clock()
        elapsed = now - start
        if now - reported >= REPORT_SECONDS:
            reported = now
            report(busy, elapsed)
    report(busy, elapsed)
    return busy / elapsed


def prepare_work(precision: str, memory_gib: float) -> Work:
    """A piece of work for all visible GPUs, which returns when they have done it."""
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is not installed: use an image that has it, such as pytorch/pytorch")
    count = torch.cuda.device_count()
    if not count:
        sys.exit("no GPU is visible: does the pod request one (nvidia.com/gpu), and does its runtime class provide it?")
    torch.backends.cuda.matmul.allow_tf32 = False  # Tensor Cores only in half precision
    kind = torch.float16 if precision == "half" else torch.float32
    matrices = [torch.randn(SIZE, SIZE, device=f"cuda:{index}").to(kind) for index in range(count)]
    held = [torch.zeros(int(memory_gib * 2**30), dtype=torch.uint8, device=each.device) for each in matrices]

    def multiply(times: int) -> None:
        for _ in range(times):
            for each in matrices:
                torch.matmul(each, each)
        for each in matrices:
            torch.cuda.synchronize(each.device)

    multiply(1)  # the first one loads the library
    began = time.monotonic()
    multiply(4)
    times = max(1, int(4 * CHUNK_SECONDS / max(time.monotonic() - began, 1e-6)))
    print(f"{count} GPUs, {times} products per piece of work, {len(held)} x {memory_gib:g} GiB held", flush=True)
    return lambda: multiply(times)


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 of a container has no default handler
    options = parse(arguments)
    work = prepare_work(options.precision, options.memory_gib)

    def report(busy: float, elapsed: float) -> None:
        print(f"busy for {100 * busy / elapsed:.1f} % of {elapsed:.1f} s", flush=True)

    keep_busy(work, share=options.share / 100, seconds=60 * options.minutes, report=report)


if __name__ == "__main__":
    main(sys.argv[1:])
