"""Laws of what an encoding holds: saved numbers, copies, gradients, and where and how it was made."""

import copy
import pickle

import numpy as np
import torch
from torch import Tensor

import posenc
from laws.subject import Subject, attend, draw, equal, law


@law("only trained or drawn numbers are saved")
def only_trained_or_drawn_numbers_are_saved(subject: Subject) -> None:
    encoding = subject.make()
    parameters = sum(parameter.numel() for parameter in encoding.parameters())
    if subject.card.trained:
        assert parameters > 0
    before = {name: tensor.clone() for name, tensor in encoding.state_dict().items()}
    for size in (5, 8) if "shape" not in subject.arguments else (None,):  # use it, also at another length
        shape = subject.shape() if size is None else [size] * subject.axes
        attend(
            subject,
            encoding,
            draw(1, int(np.prod(shape)) + subject.prefix, subject.width),
            posenc.grid(*shape, prefix=subject.prefix),
        )
        assert encoding.state_dict().keys() == before.keys()
        assert all(torch.equal(tensor, before[name]) for name, tensor in encoding.state_dict().items())
        loaded = subject.make()
        loaded.load_state_dict(before, strict=True)
        positions = subject.layout()
        x = draw(2, positions.length, subject.width)
        assert torch.equal(attend(subject, loaded, x, positions), attend(subject, encoding, x, positions))
    drawn = sum(tensor.numel() for tensor in before.values())
    assert drawn == subject.card.numbers(subject.arguments), "something derived is saved"


@law("a copy is equal")
def a_copy_is_equal(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width)
    wanted = attend(subject, encoding, x, positions)
    for twin in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
        assert torch.equal(attend(subject, twin, x, positions), wanted)
        with torch.no_grad():
            for tensor in twin.state_dict().values():
                tensor.add_(1.0)
    assert torch.equal(attend(subject, encoding, x, positions), wanted), "a copy shares its numbers"


@law("gradients are right and reach every parameter")
def gradients_are_right(subject: Subject) -> None:
    # what a head adds to all pairs alike matters only beside pairs to which it adds nothing, those of a prefix token
    prefix = subject.prefix or int(subject.place == "bias")
    encoding, positions = subject.make(), subject.layout(prefix)
    parameters = dict(encoding.named_parameters())
    x = draw(1, positions.length, subject.width).requires_grad_()

    def loss(x: Tensor, *values: Tensor) -> Tensor:
        own = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(
            _Attend(subject, encoding), {f"encoding.{k}": v for k, v in own.items()}, (x, positions)
        )

    assert torch.autograd.gradcheck(loss, (x, *parameters.values()), fast_mode=True, raise_exception=False)
    attend(subject, encoding, x, positions).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for name, parameter in parameters.items():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.abs().sum() > 0, f"{name} has a gradient of zero"


class _Attend(torch.nn.Module):
    def __init__(self, subject: Subject, encoding: posenc.Encoding) -> None:
        super().__init__()
        self.subject, self.encoding = subject, encoding

    def forward(self, x: Tensor, positions: posenc.Positions) -> Tensor:
        return attend(self.subject, self.encoding, x, positions)


@law("built without memory, it loads")
def built_without_memory_it_loads(subject: Subject) -> None:
    """On the meta device nothing can be read: whatever the host waits for fails there, and what is not saved is lost."""
    encoding, positions = subject.make(), subject.layout()
    try:
        with torch.device("meta"):
            empty = subject.kind(**subject.arguments)
        empty = empty.to(torch.float64)
        layouts = [positions]
        if subject.axes == 1 and not subject.prefix and subject.place != "conditional":
            start = torch.zeros(2, dtype=torch.long, device="meta")
            layouts.append(posenc.sequence(positions.length, start))
            layouts.append(posenc.padded(torch.ones(2, positions.length, dtype=torch.bool, device="meta")))
        for layout in layouts:
            x = torch.empty(2, positions.length, subject.width, dtype=torch.float64, device="meta").requires_grad_()
            out = attend(subject, empty, x, layout)
            assert out.device.type == "meta"
            out.sum().backward()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise AssertionError(f"a number was read on the host: {error}") from error
    with torch.no_grad():
        loaded = empty.to_empty(device="cpu")
        for tensor in [*loaded.parameters(), *loaded.buffers()]:
            tensor.fill_(float("nan"))  # what memory held before
        loaded.load_state_dict(encoding.state_dict(), strict=True)
    x = draw(2, positions.length, subject.width)
    assert torch.equal(attend(subject, loaded, x, positions), attend(subject, encoding, x, positions))


@law("used without gradients first, it trains after")
def used_without_gradients_first_it_trains_after(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    twin = copy.deepcopy(encoding)
    x = draw(2, positions.length, subject.width)
    with torch.inference_mode():
        attend(subject, encoding, x, positions)
    gradients = []
    for module in (encoding, twin):
        own = x.clone().requires_grad_()
        try:
            attend(subject, module, own, positions).square().sum().backward()
        except RuntimeError as error:
            raise AssertionError(f"something was kept from inference: {error}") from error
        gradients.append([own.grad, *(parameter.grad for parameter in module.parameters())])
    for ours, wanted in zip(*gradients, strict=True):
        assert torch.equal(ours, wanted)


@law("any default dtype will do")
def any_default_dtype_will_do(subject: Subject) -> None:
    encoding, positions = subject.make(torch.float32), subject.layout()
    x = draw(2, positions.length, subject.width, dtype=torch.float32)
    wanted = attend(subject, encoding, x, positions)
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            torch.set_default_dtype(dtype)
            made = subject.kind(**subject.arguments)
            assert all(parameter.dtype == dtype for parameter in made.parameters()), "the default dtype is not followed"
            made = made.to(torch.float32)
            made.load_state_dict(encoding.state_dict())
            ours = attend(subject, made, x, positions)
            assert ours.dtype == torch.float32
            equal(ours, wanted, 1e-5)
    finally:
        torch.set_default_dtype(before)
