"""Every peer of the benchmark computes what our scheme computes, from the same numbers."""

import shutil

import pytest
import torch

import posenc
from peers import PEERS
from posenc import bench
from posenc.bench import calls, error, peers, rows
from posenc.bench.peers import packages
from posenc.bench.setting import Setting, Subject

pytestmark = PEERS

SHAPES = {1: (13,), 2: (4, 6), 3: (2, 3, 4)}
ROUNDED = {  # what they compute in float32 whatever they are given: angles, coordinates, sinusoids, scales
    *(peer.name for peer in peers.PEERS if posenc.catalog.card(peer.scheme).place == "rotary"),
    *(peer.name for peer in peers.PEERS if peer.scheme in ("Sinusoidal", "SinusoidalLogits", "TransformerXL")),
    "timm: RelPosMlp",
    "transformers: disentangled_attention_bias",
    "x-transformers: CoPE",
}
EAGER = [peer for peer in peers.PEERS if not peer.compiled]


def setting_of(peer: peers.Peer, **options: object) -> Setting:
    """A small one that it can have: grids that are not square but where it wants a square."""
    shape = (4, 4) if "Beit" in peer.code else SHAPES[peer.axes[0]]
    causal = bool(peer.causal) or posenc.catalog.card(peer.scheme).causal
    sizes = {"batch": 2, "heads": 4, "head_dim": 24, "dtype": "float64", "causal": causal, "prefix": peer.prefix}
    return Setting(shape, **sizes | options)


def same(peer: peers.Peer, setting: Setting, most: float) -> None:
    found = error.errors(Subject(peer.scheme, peer.options, peer.name), setting, peer.trains(setting))
    assert found.output.own < most
    assert found.gradients is None or found.gradients.own < 2 * most


@pytest.mark.parametrize("peer", EAGER, ids=lambda peer: peer.name)
def test_a_peer_computes_what_ours_computes(peer: peers.Peer) -> None:
    setting = setting_of(peer)
    assert peer.refuses(setting) == ""
    same(peer, setting, 1e-6 if peer.name in ROUNDED else 1e-12)


@pytest.mark.parametrize("peer", [peer for peer in EAGER if peer.causal is None], ids=lambda peer: peer.name)
def test_a_peer_computes_the_same_where_attention_is_causal(peer: peers.Peer) -> None:
    same(peer, setting_of(peer, causal=True), 1e-6 if peer.name in ROUNDED else 1e-12)


@pytest.mark.parametrize("peer", [peer for peer in EAGER if peer.some], ids=lambda peer: peer.name)
def test_a_peer_computes_the_same_for_a_last_query(peer: peers.Peer) -> None:
    same(peer, setting_of(peer, queries=1), 1e-12)
    assert EAGER[0].refuses(setting_of(EAGER[0], queries=1)) == "it is for as many queries as keys"


@pytest.mark.parametrize("peer", EAGER, ids=lambda peer: peer.name)
def test_a_peer_runs_in_bfloat16(peer: peers.Peer) -> None:
    same(peer, setting_of(peer, dtype="bfloat16"), 0.03)


@pytest.mark.parametrize("peer", [peer for peer in peers.PEERS if peer.compiled], ids=lambda peer: peer.name)
def test_a_score_mod_computes_what_ours_computes(monkeypatch: pytest.MonkeyPatch, peer: peers.Peer) -> None:
    # as it is written, not compiled, which takes seconds: then it has float64 as well
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    for causal in (False, True) if peer.causal is None else (False,):
        # tables are read in float32
        same(peer, setting_of(peer, dtype="float32", batch=1, causal=causal), 2e-6)
    if peer.some:
        same(peer, setting_of(peer, dtype="float32", batch=1, queries=1), 2e-6)
    assert peer.refuses(setting_of(peer)) == "compiled, it has no float64 on a CPU"


@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_peer_has_a_forward_pass_and_no_memory() -> None:
    (peer,) = (peer for peer in peers.of("ALiBi", Setting((16,))) if peer.compiled)
    subject, setting = Subject("ALiBi", way=peer.name), Setting((16,), heads=2, head_dim=16)
    with bench.Memory() as memory:
        (row,) = rows.compare([subject], setting, repeats=1, train=True, memory=memory)
    assert row.refused == ""
    assert row.inference is not None
    assert (row.training, row.inference_memory, row.training_memory) == (None, None, None)
    assert row.errors.output.own < 2e-6
    assert bench.cells(row, True)[bench.headings(True).index("training")] == "forward only"


@pytest.mark.parametrize("scheme", ["T5Bias", "RelativeLogits", "Sinusoidal"])
def test_a_peer_with_other_numbers_is_noticed(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    peer = next(peer for peer in EAGER if peer.scheme == scheme)
    original = calls.called

    def other(*arguments: object) -> calls.Call:
        call = original(*arguments)
        encoding = posenc.Sinusoidal(96, base=9000.0) if scheme == "Sinusoidal" else call.encoding
        for parameter in encoding.parameters():
            parameter.data.mul_(1.1)
        return call._replace(encoding=encoding)

    monkeypatch.setattr(error, "called", other)
    found = error.errors(Subject(scheme, peer.options, peer.name), setting_of(peer), True)
    assert found.output.own > 1e-4


def test_the_names_are_those_of_the_registry() -> None:
    assert len(peers.NAMES) == len(peers.PEERS)
    assert {peer.package for peer in peers.PEERS} == set(peers.INSTALLED_BY)
    for peer in peers.PEERS:
        card = posenc.catalog.card(peer.scheme)
        assert card.name == peer.scheme
        assert card.axes in ("any", *map(str, peer.axes))


def test_peers_follow_their_scheme_when_asked_for() -> None:
    options = {"heads": 2, "head_dim": 16, "repeats": 1, "train": True}
    found = list(bench.measure(["ConditionalEncoding"], grids=[(2, 3)], with_peers=True, **options))[1:]
    assert [row.name for row in found] == ["ConditionalEncoding", "timm: twins.PosConv"]
    assert found[1].backend == "timm"
    assert found[1].parameters == found[0].parameters
    assert found[1].inference.plain_ms == found[0].inference.plain_ms  # in the same turns
    assert found[1].training_memory is not None
    found = bench.measure(["ConditionalEncoding"], grids=[(2, 3)], **options | {"memory": False})
    assert [row.name for row in found] == ["ConditionalEncoding"] * 2  # on a line, of which there is no peer, and here


def test_nothing_is_imported_for_ours_alone() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from posenc import bench\n"
        "list(bench.measure(['ALiBi'], lengths=[4], heads=1, head_dim=8, repeats=1, memory=False))\n"
        "print([name for name in ('timm', 'transformers', 'x_transformers', 'torchvision') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"


def test_a_package_that_is_not_installed_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    found = packages.importlib.util.find_spec
    monkeypatch.setattr(
        packages.importlib.util, "find_spec", lambda name, *rest: None if name == "timm" else found(name, *rest)
    )
    assert peers.missing("timm") == "timm is not installed: pip install timm torchvision"
    assert bench.missing_peers() == ["timm is not installed: pip install timm torchvision"]
    options = {"grids": [(2, 3)], "heads": 2, "head_dim": 16, "repeats": 1, "memory": False}
    found = bench.measure(["ConditionalEncoding"], with_peers=True, **options)
    assert {row.name for row in found} == {"ConditionalEncoding"}
    subject = Subject("ConditionalEncoding", way="timm: twins.PosConv")
    (row,) = rows.compare([subject], Setting((2, 3)), repeats=1)
    assert row.refused == "timm: twins.PosConv is left out: timm is not installed: pip install timm torchvision"


def test_a_package_that_has_changed_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(peers.taken("timm.models.twins"), "PosConv")
    subject = Subject("ConditionalEncoding", way="timm: twins.PosConv")
    ours, theirs = rows.compare([Subject("ConditionalEncoding"), subject], Setting((2, 3), heads=2), repeats=1)
    assert ours.inference is not None
    assert theirs.refused.startswith("timm: twins.PosConv is left out: AttributeError: ")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("transformers: llama.apply_rotary_pos_emb", {"head_dim": 23}, "it needs a multiple of 2 channels, got 23"),
        ("positional-encodings: PositionalEncoding2D", {"head_dim": 5, "heads": 1}, "a multiple of 4 channels, got 5"),
        ("timm: PosEmbedRel (BoTNet)", {"causal": True}, "it is for attention that is not causal"),
        ("x-transformers: CoPE", {"causal": False}, "it is for attention that is causal"),
    ],
)
def test_a_peer_refuses_what_it_cannot(name: str, options: dict[str, object], reason: str) -> None:
    peer = peers.NAMES[name]
    assert reason in peer.refuses(setting_of(peer, **options))
    assert not peer.fits(setting_of(peer, prefix=5))


def test_a_grid_that_is_not_square_is_not_for_beit_of_transformers() -> None:
    peer = peers.NAMES["transformers: BeitRelativePositionBias"]
    subject = Subject(peer.scheme, peer.options, peer.name)
    (row,) = rows.compare([subject], Setting((2, 4), prefix=1, heads=2, head_dim=8), repeats=1)
    assert "on a grid that is not square" in row.refused


@pytest.mark.parametrize("fails", ["calls", "gradients", "errors"])
def test_a_peer_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("it broke")

    subject = Subject("ConditionalEncoding", way="timm: twins.PosConv")
    setting = Setting((2, 3), heads=2, head_dim=8)
    if fails == "errors":
        found = rows.errors
        monkeypatch.setattr(
            rows, "errors", lambda given, *rest: fail() if given.way == subject.way else found(given, *rest)
        )
    else:
        convolution = peers.taken("timm.models.twins").PosConv
        forward = convolution.forward
        monkeypatch.setattr(
            convolution,
            "forward",
            lambda self, x, size: fail() if fails == "calls" or x.requires_grad else forward(self, x, size),
        )
    ours, theirs = rows.compare([Subject("ConditionalEncoding"), subject], setting, repeats=1, train=True)
    assert ours.errors is not None
    assert (ours.refused, ours.training is None) == ("", False)
    assert theirs.refused == "timm: twins.PosConv is left out: RuntimeError: it broke"
    assert (theirs.inference is None) == (fails == "calls")
    assert (theirs.training is None) == (fails != "errors")
