"""Attention with position beside attention without it: what must be reached, and what is.

    python benchmarks/attention.py                                   # everything
    python benchmarks/attention.py --only windows --dtypes float32   # goals whose names have this in them
    python benchmarks/attention.py --json benchmarks/results/attention.json
    POSENC_CPU_LEVEL=avx2 python benchmarks/attention.py --allowance 0.2

A line as soon as it is measured; progress goes to stderr. How to read them is in the README beside this file.
"""

from posenc.bench import Memory, Setting, Subject
from posenc.bench.goals import Goal, Required, pursue
from posenc.bench.report import Report, parser

LINE, PLANE = Setting((4096,)), Setting((64, 64))
MEMORY = (24.0, 48.0)
FRAMES, CLASS = Setting((1, 64, 64)), PLANE._replace(prefix=1)


def required(*ratios: float | None, memory: bool = True) -> dict[str, Required]:
    """Inference in float32 and bfloat16, then training; and the memory that is required of everything."""
    narrow, wide = (ratios[0], *ratios[2:3]), (ratios[1], *ratios[3:4])
    return {
        dtype: Required(*(*each, None)[:2], *(MEMORY if memory else (None, None)))
        for dtype, each in (("float32", narrow), ("bfloat16", wide))
    }


def ours(scheme: str, *, way: str = "attention", frozen: bool = False, **options: object) -> Subject:
    return Subject(scheme, tuple(options.items()), way, frozen)


BIAS = required(0.95, 1.0, 0.95, 1.0)
TABLE = required(0.95, 1.0, 0.95, 1.05)
GRID_LOGITS = required(0.95, 1.05, 1.0, 1.1)
NOTHING, MEMORY_ALONE = required(None, None, memory=False), required(None, None)
ONE = LINE._replace(queries=1)
WINDOWS = Setting((7, 7), batch=1024, heads=4, head_dim=32)

ALONE = "ready rotate", "ready rotate_"
LINES = tuple(ours(name, frozen=frozen) for name in ("T5Bias", "Kerple") for frozen in (True, False))
GOALS = [
    Goal("no encoding", LINE, (Subject(),), required(0.9, 1.0, 0.9, 1.0)),
    Goal("no encoding, causal", LINE._replace(causal=True), (Subject(),), required(0.9, 1.0, 0.9, 1.0)),
    Goal("rotary", LINE, (ours("Rotary"),), required(0.95, 1.0, 0.95, 1.0)),
    Goal("rotary, causal", LINE._replace(causal=True), (ours("Rotary"),), required(0.95, 1.0, 0.95, 1.0)),
    Goal("rotary, 2-D", PLANE, (ours("Rotary"),), required(0.95, 1.0, 0.95, 1.0)),
    Goal("1-D bias", LINE, (ours("ALiBi"), ours("ALiBi", learned=True), *LINES), BIAS),
    Goal("1-D bias, causal", LINE._replace(causal=True), (ours("ALiBi"), ours("T5Bias", bidirectional=False)), BIAS),
    Goal("2-D table", PLANE, (ours("RelativePositionBias"), ours("ContinuousPositionBias")), TABLE),
    Goal("2-D table with a class token", CLASS, (ours("RelativePositionBias", prefix_bias=True),), TABLE),
    Goal("2-D decomposed logits", PLANE, (ours("RelativeLogits"), ours("RelativeLogits", scaled=False)), GRID_LOGITS),
    Goal("Shaw, keys", LINE, (ours("Shaw", max_distance=64, values=False),), required(1.0, 1.1, 1.1, 1.15)),
    Goal("1-D content logits", LINE, (ours("RelativeLogits"), ours("TransformerXL")), required(1.4, 1.5, 1.6, 1.7)),
    Goal(
        "windows, beside plain with a ready mask",
        WINDOWS,
        (ours("RelativePositionBias"),),
        required(1.0, 1.1, 1.0, 1.1, memory=False),
        Subject(way="plain with a ready mask"),
    ),
    Goal(
        "one decode query, terms evaluated beforehand",
        ONE,
        tuple(ours(name, way="ready") for name in ("ALiBi", "T5Bias", "Kerple")),
        required(1.2, 1.2),
        train=False,
    ),
    Goal("one decode query, terms evaluated in the call", ONE, (ours("ALiBi"), ours("T5Bias")), NOTHING, train=False),
    Goal(
        "rotary alone, its term evaluated beforehand, beside cloning q and k",
        LINE,
        tuple(ours("Rotary", way=way, layout=layout) for layout in ("half", "interleaved") for way in ALONE),
        required(1.2, 1.2, memory=False),
        Subject(way="clone"),
        train=False,
    ),
    Goal(
        "rotary alone, evaluated in the call, beside cloning q and k",
        LINE,
        (ours("Rotary", way="rotate"),),
        NOTHING,
        Subject(way="clone"),
        train=False,
    ),
    Goal(
        "other schemes, memory",
        LINE,
        tuple(map(ours, ("Sandwich", "Shaw", "SinusoidalLogits", "Deberta"))),
        MEMORY_ALONE,
    ),
    Goal("other schemes on a grid, memory", PLANE, (ours("MixedRotary"), ours("IRPE")), MEMORY_ALONE),
    Goal("other schemes on frames, memory", FRAMES, (ours("MultimodalRotary"),), MEMORY_ALONE),
    Goal("other causal schemes, memory", LINE._replace(causal=True), (ours("XPos"),), MEMORY_ALONE),
    Goal("schemes with a matrix of their own", LINE, (ours("Fire"),), NOTHING),
    Goal("causal schemes with a matrix of their own", LINE._replace(causal=True), (ours("CoPE"),), NOTHING),
]


def main() -> None:
    options = parser(__doc__, repeats=9)
    options.add_argument(
        "--only", action="append", metavar="NAME", help="goals whose names have this in them; may be given again"
    )
    options.add_argument("--dtypes", default="float32,bfloat16", help="default: float32,bfloat16")
    options.add_argument("--allowance", type=float, default=0.0, help="added to every required ratio (default: 0)")
    options.add_argument("--tokens", type=int, default=4096, help="in place of 4,096, to try the script (a square)")
    options.add_argument("--inference", action="store_true", help="leave the backward pass out")
    options.add_argument("--no-peers", action="store_true", help="leave other packages out")
    given = options.parse_args()
    wanted = given.only or [""]
    for part in wanted:
        if not any(part in goal.name for goal in GOALS):
            options.error(f"--only must be in a name, got {part!r}: give part of {'; '.join(g.name for g in GOALS)}")
    goals = [goal for goal in GOALS if any(part in goal.name for part in wanted)]
    report = Report("Attention with position", given.json, train=not given.inference)
    with Memory() as memory:
        for dtype in given.dtypes.split(","):
            for goal in goals:
                goal = resized(goal, given.tokens, given.device, given.inference, given.allowance)
                how = {"repeats": given.repeats, "with_peers": not given.no_peers, "memory": memory, "error": True}
                for result in pursue(goal, dtype, say=report.say, **how):
                    report.add(result)
    missed = [result for result in report.results if result.missed]
    print(f"\n{len(report.results)} measured, {len(missed)} missed")


def resized(goal: Goal, tokens: int, device: str, inference: bool, allowance: float) -> Goal:
    """A goal with another number of tokens, on another device, without training, or with more time."""
    side, shape = round(tokens**0.5), goal.setting.shape
    if goal.setting is not WINDOWS:
        shape = (tokens,) if len(shape) == 1 else (*shape[:-2], side, side)
    wanted = {
        dtype: each._replace(
            inference=each.inference and each.inference + allowance,
            training=each.training and each.training + allowance,
        )
        for dtype, each in goal.required.items()
    }
    setting = goal.setting._replace(shape=shape, device=device)
    return goal._replace(setting=setting, required=wanted, train=goal.train and not inference)


if __name__ == "__main__":
    main()
