"""Terms made by hand, as a scheme of one's own may make them, and what `explain` says of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import posenc
from posenc import kernels
from posenc.backends.cpu.operands import TABLE, Operands
from posenc.backends.cpu.operators import compute
from posenc.relative import Relative
from posenc.term import Bias, Content, Part, Rotation

pytestmark = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("side", ["bias", "query", "key", "value"])
def test_numbers_of_each_batch_row_have_gradients_of_their_own(heads: int, side: str, seed: int) -> None:
    relative = Relative(posenc.sequence(9))
    q, k, v = torch.randn(3, 2, heads, 9, 16, dtype=torch.float64)
    shape = (2, heads, 17) if side == "bias" else (2, heads, 17, 16)
    table = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    term: posenc.Term
    part = Part(side, 0, table, lambda lags: lags + 8)  # type: ignore[arg-type]
    term = Bias(relative, table) if side == "bias" else Content(relative, [part])
    found = [
        torch.autograd.grad(posenc.attention(q, k, v, term, backend=backend).sin().sum(), table)[0]
        for backend in ("cpu", "dense")
    ]
    torch.testing.assert_close(*found)


def both(q: Tensor, k: Tensor, v: Tensor, term: posenc.Term, **options: Any) -> None:
    """The kernel gives what the dense path gives."""
    found, wanted = (posenc.attention(q, k, v, term, backend=backend, **options) for backend in ("cpu", "dense"))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1, 9), (1, 2, 9, 1), (2, 1, 1, 1)])
def test_numbers_of_pairs_broadcast(shape: tuple[int, ...], seed: int) -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 16)
    values = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    term = Bias(Relative(posenc.sequence(9)), values)
    found = [
        torch.autograd.grad(
            posenc.attention(*(x.double() for x in (q, k, v)), term, backend=backend).sin().sum(), values
        )
        for backend in ("cpu", "dense")
    ]
    torch.testing.assert_close(*found)
    both(q, k, v, Bias(term.relative, values.detach().float()))


@pytest.mark.parametrize("side", ["query", "key"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 16), (1, 2, 1, 16), (1, 2, 1, 1)])
@pytest.mark.parametrize("autocast", [False, True])
def test_what_a_part_adds(side: str, shape: tuple[int, ...], autocast: bool, seed: int) -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 16)
    part = Part(side, 0, torch.randn(1, 2, 17, 16), lambda lags: lags + 8, 0.0, torch.randn(shape))  # type: ignore[arg-type]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        both(q, k, v, Content(Relative(posenc.sequence(9)), [part]))


def bias(*shape: int, prefix: tuple[int, ...] | None = None, dtype: torch.dtype = torch.float32) -> Bias:
    numbers = None if prefix is None else torch.randn(prefix)
    return Bias(Relative(posenc.sequence(9)), torch.randn(shape, dtype=dtype), numbers)


def content(*shape: int, added: tuple[int, ...] | None = None, behind: int = 8, side: str = "query") -> Content:
    numbers = None if added is None else torch.randn(added)
    part = Part(side, 0, torch.randn(shape), lambda lags: lags + behind, 0.0, numbers)  # type: ignore[arg-type]
    return Content(Relative(posenc.sequence(9)), [part])


def rows_of(change: Callable[[Tensor], Tensor]) -> Content:
    """Vectors whose row function does something else at last."""
    part = Part("query", 0, torch.randn(1, 1, 17, 16), lambda lags: change(lags + 8))
    return Content(Relative(posenc.sequence(9)), [part])


def rotation(query: tuple[int, ...], key: tuple[int, ...], sines: tuple[int, ...] | None = None) -> Rotation:
    turns = [(torch.randn(shape), torch.randn(sines or shape)) for shape in (query, key)]
    return Rotation(Relative(posenc.sequence(9)), *turns, "half")


OTHERS: dict[str, tuple[Callable[[], posenc.Term], str]] = {
    "numbers of fewer pairs": (
        lambda: bias(1, 1, 9, 8),
        r"the numbers of a term must be \[1 or 2, 1, 9, 9\] here, got",
    ),
    "numbers of more rows": (lambda: bias(3, 1, 9, 9), r"the numbers of a term must be \[1 or 2, 1, 9, 9\] here, got"),
    "a table for more rows": (lambda: bias(3, 1, 17), r"the table of a term must be \[1 or 2, 1, 17\] here, got"),
    "a table of fewer numbers": (lambda: bias(1, 1, 16), "must give a number for each of the 17 relative positions"),
    "a table of more numbers": (lambda: bias(1, 1, 18), "must give a number for each of the 17 relative positions"),
    "prefix numbers of two kinds": (lambda: bias(1, 1, 17, prefix=(1, 2)), r"prefix numbers.* \[1, 3\] here, got"),
    "prefix numbers of more heads": (lambda: bias(1, 1, 17, prefix=(2, 3)), r"prefix numbers.* \[1, 3\] here, got"),
    "narrower vectors": (
        lambda: content(1, 1, 17, 8),
        r"the vectors of a term must be \[1 or 2, 1, 17, 16\] here, got",
    ),
    "fewer vectors": (lambda: content(1, 1, 16, 16), "every relative position must have a row of its table"),
    "rows before the first": (lambda: content(1, 1, 17, 16, behind=7), "every relative position must have a row"),
    "values' rows before the first": (lambda: content(1, 1, 17, 16, behind=7, side="value"), "must have a row"),
    "keys' rows before the first": (lambda: content(1, 1, 17, 16, behind=7, side="key"), "must have a row"),
    "a narrower vector added": (
        lambda: content(1, 1, 17, 16, added=(1, 1, 1, 8)),
        r"must be \[1, 1 or heads, 1, 16\], got",
    ),
    "a vector added for each row": (lambda: content(1, 1, 17, 16, added=(2, 1, 1, 16)), "one vector for all rows"),
    "a vector added for more heads": (lambda: content(1, 1, 17, 16, added=(1, 2, 1, 16)), r"\[1, 16\] here, got"),
    "rows for more of the batch": (lambda: rows_of(lambda rows: rows.expand(3, -1, -1)), r"\[1 or 2, 17\] here, got"),
    "rows that are not whole": (lambda: rows_of(lambda rows: rows + 0.5), "must have one whole row for each of 17"),
    "rows that are true or false": (lambda: rows_of(lambda rows: rows > 8), "must have one whole row for each of 17"),
    "rows of some codes": (lambda: rows_of(lambda rows: rows[..., :16]), "must have one whole row for each of 17"),
    "angles of fewer tokens": (lambda: rotation((1, 1, 8, 4), (1, 1, 9, 4)), r"\[1 or 2, 1, 9, 4\] here, got"),
    "angles of more rows": (lambda: rotation((1, 1, 9, 4), (3, 1, 9, 4)), r"\[1 or 2, 1, 9, 4\] here, got"),
    "fewer angles for keys": (lambda: rotation((1, 1, 9, 4), (1, 1, 9, 2)), r"\[1 or 2, 1, 9, 4\] here, got"),
    "more angles than pairs": (lambda: rotation((1, 1, 9, 9), (1, 1, 9, 9)), "turns 18 channels, got q with 16"),
    "sines of other sizes": (lambda: rotation((2, 1, 9, 4), (2, 1, 9, 4), (1, 1, 9, 4)), "must be of one shape, got"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_terms_of_other_sizes_are_errors(name: str, seed: int) -> None:
    """Nothing is read or written beyond a tensor, clamped, or taken for something else."""
    make, message = OTHERS[name]
    q, k, v = torch.randn(3, 2, 1, 9, 16)
    with pytest.raises(ValueError, match=message):
        posenc.attention(q, k, v, make(), backend="cpu")


@pytest.mark.parametrize("lag", [2, 5, 1, 6, 8])
def test_rows_are_asked_of_pairs_alone(lag: int, seed: int) -> None:
    """A table may lack a row of the box that no pair reads: tokens at 0, 1, 7 and 8 are never 2 to 5 apart."""

    def row(lags: Tensor) -> Tensor:
        return torch.where(lags.abs() == lag, -1, lags + 8)

    q, k, v = torch.randn(3, 1, 2, 4, 16)
    apart = Relative(posenc.coordinates(torch.tensor([[0], [1], [7], [8]]), extent=9))
    term = Content(apart, [Part("query", 0, torch.randn(1, 1, 17, 16), row)])
    if 2 <= lag <= 5:
        return both(q, k, v, term)
    with pytest.raises(ValueError, match="every relative position must have a row"):
        posenc.attention(q, k, v, term, backend="cpu")


def test_numbers_of_another_dtype_are_an_error(seed: int) -> None:
    q, k, v = torch.randn(3, 2, 1, 9, 16)
    codes = Relative(posenc.sequence(9)).short_codes()
    operands = Operands([torch.randn(1, 1, 17, dtype=torch.float64)], [*codes], [0, 0, 0, 0, 0, TABLE, 0, 0])
    with pytest.raises(ValueError, match=r"must be in torch.float32, got torch.float64"):
        compute(q, k, v, operands, 0.25, False)


def test_vectors_of_far_more_positions_than_pairs_are_made_pair_by_pair(seed: int) -> None:
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    far = posenc.coordinates(torch.randint(0, 10**9, (9, 1)), extent=10**9)
    term = posenc.Shaw(16, 3, values=False).term(far)
    plan = posenc.explain(q, k, v, term)
    assert plan.refusals["cpu"] == ["a term has vectors for far more relative positions than there are pairs"]
    near = posenc.coordinates(torch.arange(9)[:, None] * 4, extent=40)
    assert posenc.explain(q, k, v, posenc.Shaw(16, 3, values=False), positions=near).backend.NAME == "cpu"
    with torch.no_grad():
        dense, flexible = (posenc.attention(q, k, v, term, backend=backend) for backend in ("dense", "flex"))
    torch.testing.assert_close(flexible, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["query", "key"])
@pytest.mark.parametrize("first", [False, True])
def test_each_part_has_a_future_of_its_own(side: str, first: bool, seed: int) -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 16)
    future = [1.0, 0.0] if first else [0.5, -2.0]
    parts = [Part(side, 0, torch.randn(1, 2, 17, 16), lambda lags: lags + 8, each) for each in future]  # type: ignore[arg-type]
    term = Content(Relative(posenc.sequence(9)), parts)
    both(q, k, v, term)
    alone = [Content(term.relative, [part]).logits(q, k) for part in parts]
    torch.testing.assert_close(term.logits(q, k), alone[0] + alone[1])
    with torch.no_grad():
        flexible = posenc.attention(q, k, v, term, backend="flex")
    torch.testing.assert_close(flexible, posenc.attention(q, k, v, term, backend="dense"), rtol=1e-4, atol=1e-5)


def test_parts_and_rotations_that_cannot_be() -> None:
    table = torch.randn(1, 1, 17, 16)
    for side, options in (("value", {"future": 1.0}), ("value", {"added": table[:, :, :1]}), ("querry", {})):
        with pytest.raises(ValueError, match=r"vectors that join the values have no|side must be query, key or value"):
            Content(Relative(posenc.sequence(9)), [Part(side, 0, table, lambda lags: lags + 8, **options)])  # type: ignore[arg-type]
    turns = (torch.randn(1, 1, 9, 8), torch.randn(1, 1, 9, 8))
    with pytest.raises(ValueError, match="layout must be half or interleaved, got 'Half'"):
        Rotation(Relative(posenc.sequence(9)), turns, turns, "Half")  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["table", "vectors", "sines"])
def test_numbers_that_are_lazily_zero(place: str, seed: int) -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 16)
    relative, cosines = Relative(posenc.sequence(9)), torch.randn(1, 1, 9, 8)
    part = Part("query", 0, torch._efficientzerotensor((1, 2, 17, 16)), lambda lags: lags + 8)
    term = {
        "table": lambda: Bias(relative, torch._efficientzerotensor((1, 2, 17))),
        "vectors": lambda: Content(relative, [part]),
        "sines": lambda: Rotation(relative, *[(cosines, torch._efficientzerotensor(cosines.shape))] * 2, "half"),
    }[place]()
    both(q, k, v, term)


def test_explain_says_where_there_is_a_number_for_every_pair(seed: int) -> None:
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    plan = str(posenc.explain(q, k, v, posenc.Fire(2), posenc.Rotary(16), causal=True))
    assert "terms in the logits: bias (a number for every pair, L x L); q and k turned as they are read" in plan
    assert "not flex, sdpa, dense: cpu comes first" in plan or "not flex: FlexAttention is for CUDA" in plan
