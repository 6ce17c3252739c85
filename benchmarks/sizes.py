"""Speed, memory and error of the schemes at sizes that models have, beside plain attention in the same run.

    python benchmarks/sizes.py                       # all sizes
    python benchmarks/sizes.py windows --peers       # one of them, and other packages beside it
    python benchmarks/sizes.py --json sizes.json     # and a page, sizes.md

A line as soon as it is measured; progress goes to stderr. How to read them is in the README beside this file.
"""

from posenc import bench
from posenc.bench.goals import Required, Result
from posenc.bench.report import Report, parser

SIZES = {
    "image": {"grids": [(48, 48)]},  # 2,304 tokens: a large feature map, or a long sequence
    "clipped": {"schemes": ["Shaw", "SinusoidalLogits"], "lengths": [1024]},
    "vit": {"grids": [(14, 14)], "batch": 64},  # patches of a vision transformer
    "windows": {"grids": [(7, 7)], "batch": 256, "heads": 4, "head_dim": 32},  # windows of a Swin transformer
    "half": {"schemes": ["Rotary", "ALiBi", "RelativePositionBias"], "grids": [(48, 48)], "dtype": "bfloat16"},
}


def main() -> None:
    options = parser(__doc__, repeats=7)
    options.add_argument("sizes", nargs="*", metavar="size", help=f"of {', '.join(SIZES)}; all by default")
    options.add_argument("--peers", action="store_true", help="other packages too")
    given = options.parse_args()
    if unknown := set(given.sizes) - set(SIZES):
        options.error(f"unknown size {', '.join(sorted(unknown))}: give some of {', '.join(SIZES)}")
    report = Report("Sizes that models have", given.json, train=True)
    how = {"repeats": given.repeats, "device": given.device, "train": True, "with_peers": given.peers}
    for size in given.sizes or SIZES:
        for row in bench.measure(**SIZES[size], **how, say=report.say):
            report.add(Result(size, row, Required(), [], {}))


if __name__ == "__main__":
    main()
