"""How time and memory grow: sequences of 1,024 to 16,384 tokens, and grids of 16² to 96².

    python benchmarks/growth.py
    python benchmarks/growth.py --train --json benchmarks/results/growth.json
    python benchmarks/growth.py --schemes ALiBi --lengths 1024,4096

A line as soon as it is measured; progress goes to stderr. What would not fit in memory is left out, and says so.
"""

from posenc.bench import Memory, Setting, Subject, compare
from posenc.bench.goals import Required, Result
from posenc.bench.report import Report, parser

LENGTHS, SIDES = "1024,2048,4096,8192,16384", "16,32,48,64,96"
ON_A_LINE = {
    "": {},
    "Rotary": {},
    "ALiBi": {},
    "T5Bias": {},
    "Kerple": {},
    "Shaw": {"max_distance": 64, "values": False},
    "RelativeLogits": {},
    "TransformerXL": {},
}
ON_A_GRID = {
    "Rotary": {},
    "RelativePositionBias": {},
    "ContinuousPositionBias": {},
    "RelativeLogits": {"scaled": False},
}


def main() -> None:
    options = parser(__doc__, repeats=5)
    options.add_argument("--train", action="store_true", help="the backward pass too")
    options.add_argument("--schemes", default="", help="some of those measured, as ALiBi,Rotary (default: all)")
    options.add_argument("--lengths", default=LENGTHS, help=f"default: {LENGTHS}")
    options.add_argument("--sides", default=SIDES, help=f"of square grids (default: {SIDES})")
    options.add_argument("--dtype", default="float32", help="default: float32")
    options.add_argument("--backend", default="auto", help="default: auto")
    given = options.parse_args()
    lines = [(int(length),) for length in given.lengths.split(",") if length]
    grids = [(int(side),) * 2 for side in given.sides.split(",") if side]
    cases = [(scheme, how, shape) for scheme, how in ON_A_LINE.items() for shape in lines]
    cases += [(scheme, how, shape) for scheme, how in ON_A_GRID.items() for shape in grids]
    report = Report("How time and memory grow", given.json, given.train)
    with Memory() as memory:
        for scheme, how, shape in cases:
            if given.schemes and scheme not in given.schemes.split(","):
                continue
            subject = Subject(scheme, tuple(how.items()), backend=given.backend)
            setting = Setting(shape, dtype=given.dtype, device=given.device)
            measured = {"repeats": given.repeats, "train": given.train, "memory": memory, "say": report.say}
            for row in compare([subject], setting, **measured):
                report.add(Result(row.name, row, Required(), [], {}))


if __name__ == "__main__":
    main()
