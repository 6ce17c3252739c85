"""Speed and memory of the schemes at sizes that models have, beside plain attention in the same run.

    python benchmarks/sizes.py                      # all sizes
    python benchmarks/sizes.py windows              # one of them
    python benchmarks/sizes.py windows > mine.jsonl # a line of JSON for each scheme

Each size has a name; how to read the numbers is in the README beside this file. Progress goes to stderr.
"""

import argparse
import json
import sys

from posenc import bench

SIZES = {
    "image": {"grid": (48, 48)},  # 2,304 tokens: a large feature map, or a long sequence
    "clipped": {"schemes": ["Shaw", "SinusoidalLogits"], "length": 1024},
    "vit": {"grid": (14, 14), "batch": 64},  # patches of a vision transformer
    "windows": {"grid": (7, 7), "batch": 256, "heads": 4, "head_dim": 32},  # windows of a Swin transformer
    "half": {"schemes": ["Rotary", "ALiBi", "RelativePositionBias"], "grid": (48, 48), "dtype": "bfloat16"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", metavar="size", help=f"of {', '.join(SIZES)}; all by default")
    parser.add_argument("--repeats", type=int, default=7, help="pairs of runs (default: 7)")
    options = parser.parse_args()
    if unknown := set(options.sizes) - set(SIZES):
        parser.error(f"unknown size {', '.join(sorted(unknown))}: give some of {', '.join(SIZES)}")
    for size in options.sizes or SIZES:
        for row in bench.measure(**SIZES[size], repeats=options.repeats):
            print(json.dumps({"size": size} | bench.about() | row.as_dict()), flush=True)
            times = f"inference {row.inference.ratio:.2f}, training {row.training.ratio:.2f}"
            print(f"{size}: {row.scheme} {row.setting.shape}: {times}", file=sys.stderr)


if __name__ == "__main__":
    main()
