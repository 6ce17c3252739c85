"""How exact rotary stays far from the origin, beside angles computed in plain float32.

    python benchmarks/long_positions.py
    python benchmarks/long_positions.py --base 500000 --head-dim 64

A row is an offset. *cosine*: largest error, against 80-bit floats. *logit*: largest change when query and key are both
shifted so far, in units of float32's eps · |q| |k|, and in bfloat16 over the error at the origin (1.0: no change).
"""

import argparse
import random

import numpy as np
import torch
from torch import Tensor

import posenc

LENGTH, EPS = 256, torch.finfo(torch.float32).eps


class Plain(posenc.Rotary):
    """Angles as a float32 position times a float32 frequency."""

    def cos_sin(self, positions: posenc.Positions, *, dtype: torch.dtype, **options: object) -> tuple[Tensor, Tensor]:
        angles = (positions.coordinates().float() * self.frequencies()[0].float())[None, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)


def errors(rotary: posenc.Rotary, start: int, q: Tensor, k: Tensor) -> tuple[float, float, float]:
    """Of a cosine, of a float32 logit, and of a bfloat16 logit, at positions from `start` on."""
    positions = posenc.sequence(LENGTH, start)
    angles = np.longdouble(positions.coordinates().numpy()) * np.longdouble(rotary.frequencies()[0].numpy())
    cosine = np.abs(rotary.cos_sin(positions, dtype=torch.float32)[0][0, 0].numpy() - np.cos(angles)).max()
    q2, k2 = posenc.Rotary(rotary.head_dim, base=rotary.base)(q.double(), k.double(), posenc.sequence(LENGTH))
    norms = q.double().norm(dim=-1)[..., None] * k.double().norm(dim=-1)[..., None, :]
    off = []
    for dtype in (torch.float32, torch.bfloat16):
        turned_q, turned_k = rotary(q.to(dtype), k.to(dtype), positions)
        off.append(float(((turned_q @ turned_k.mT - q2 @ k2.mT).abs() / norms).max()))
    return float(cosine), off[0] / EPS, off[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=float, default=10000.0)
    parser.add_argument("--head-dim", type=int, default=128)
    options = parser.parse_args()
    q, k = torch.randn(2, 1, 4, LENGTH, options.head_dim).bfloat16()
    exact, plain = (kind(options.head_dim, base=options.base) for kind in (posenc.Rotary, Plain))
    origin = errors(exact, 0, q, k)[2]
    print("offset      |  cosine: posenc   float32 |  logit, eps: posenc   float32 |  bfloat16: posenc   float32")
    for start in [0, *(random.randint(10**power, 10 ** (power + 1)) for power in range(3, 7)), 10**7]:
        a, b = (errors(kind, start, q, k) for kind in (exact, plain))
        ratios = f"{a[2] / origin:16.1f}  {b[2] / origin:8.1f}"
        print(f"{start:<11,} |  {a[0]:14.1e}  {b[0]:8.1e} |  {a[1]:18.1f}  {b[1]:8.0f} |  {ratios}")


if __name__ == "__main__":
    main()
