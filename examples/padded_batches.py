"""Prompts of several lengths in one batch, padded on the left or on the right, equal the prompts alone."""

import torch

import posenc

torch.manual_seed(0)
lengths = [3, 9, 6]
layer = posenc.SelfAttention(32, 4, posenc.Rotary(8), posenc.ALiBi(4)).double()
prompts = [torch.randn(length, 32, dtype=torch.float64) for length in lengths]
with torch.no_grad():
    alone = [layer(prompt[None], causal=True)[0] for prompt in prompts]

for side in ("left", "right"):
    batch = torch.full((3, 9, 32), 1e3, dtype=torch.float64)  # whatever padding holds, it must not matter
    mask = torch.zeros(3, 9, dtype=torch.bool)  # True = a token
    for row, prompt in enumerate(prompts):
        where = slice(9 - len(prompt), 9) if side == "left" else slice(0, len(prompt))
        batch[row, where], mask[row, where] = prompt, True

    positions = posenc.padded(mask)  # counts real tokens, and hides the padding
    with torch.no_grad():
        out = layer(batch, positions=positions, causal=True)
    difference = max((out[row][mask[row]] - alone[row]).abs().max().item() for row in range(3))
    assert difference < 1e-12
    print(f"padded on the {side:5}: the shortest prompt is at {positions.coordinates()[0, :, 0][mask[0]].tolist()},")
    print(f"    and no output differs from the prompt alone by more than {difference:.0e}")
