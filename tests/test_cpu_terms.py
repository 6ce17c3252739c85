"""Terms made by hand, as a scheme of one's own may make them, and what `explain` says of them."""

import pytest
import torch

import posenc
from posenc.relative import Relative
from posenc.term import Bias, Content, Part


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


@pytest.mark.parametrize("shape", [(1, 1, 1, 9), (1, 1, 9, 1), (1, 1, 9, 8), (3, 1, 9, 9)])
def test_numbers_of_pairs_of_other_sizes_are_errors(shape: tuple[int, ...], seed: int) -> None:
    q, k, v = torch.randn(3, 2, 1, 9, 16)
    term = Bias(Relative(posenc.sequence(9)), torch.randn(shape))
    with pytest.raises(ValueError, match=r"the numbers of a term must be \[1 or 2, 1 or 1, 9, 9\] here, got"):
        posenc.attention(q, k, v, term, backend="cpu")


def test_explain_says_where_there_is_a_number_for_every_pair(seed: int) -> None:
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    plan = str(posenc.explain(q, k, v, posenc.Fire(2), posenc.Rotary(16), causal=True))
    assert "terms in the logits: bias (a number for every pair, L x L); q and k turned before" in plan
    assert "not flex, sdpa, dense: cpu comes first" in plan or "not flex: FlexAttention is for CUDA" in plan
