"""A learned table at a resolution it was not trained at: refused as it stands, resized on request."""

import math

import torch

import posenc


def waves(height: int, width: int) -> torch.Tensor:
    """Six smooth functions of the place in an image, sampled at the centres of its cells, `[cells, 6]`."""
    rows = (torch.arange(height) + 0.5) / height
    columns = (torch.arange(width) + 0.5) / width
    place = torch.cartesian_prod(rows, columns) @ torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    return torch.cat([torch.sin(math.pi * place), torch.cos(math.pi * place)], dim=-1)


# A table as training might leave it: a row for the CLS token, then 8 x 10 cells.
trained = posenc.Learned((8, 10), dim=6, prefix=1)
with torch.no_grad():
    trained.table[1:] = waves(8, 10)

# Twice the resolution: a table has no row there, and says so rather than guess.
x = torch.zeros(1, 1 + 16 * 20, 6)
try:
    trained(x, posenc.grid(16, 20, prefix=1))
except ValueError as error:
    print(f"refused: {error}")
else:
    raise AssertionError("a table ran past its end")

# Resized: the CLS row stays as it was, the cells are interpolated, both grids are given and neither is guessed.
larger = posenc.Learned((16, 20), dim=6, prefix=1)
with torch.no_grad():
    larger.table.copy_(posenc.resize_table(trained.table, (8, 10), (16, 20), prefix=1))
    vectors = larger(x, posenc.grid(16, 20, prefix=1))[0]
assert torch.equal(vectors[0], trained.table[0])
inside = (vectors[1:] - waves(16, 20)).unflatten(0, (16, 20))[4:-4, 4:-4].abs().max().item()
assert inside < 0.02

# The other way to run a trained model on finer images: keep the table-free encoding, and squeeze the coordinates.
squeezed = posenc.grid(16, 20).rescaled((-0.5, -0.5), (7.5, 9.5))
print(f"coordinates squeezed into the trained grid: {squeezed.coordinates()[0].tolist()} to", end=" ")
print(squeezed.coordinates()[-1].tolist())
print(f"resized to 16 x 20, the table is within {inside:.4f} of the functions it was sampled from")
