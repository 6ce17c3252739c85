"""What every test shares: one thread, no network, a fresh seed that can be replayed, and importable peers."""

from __future__ import annotations

import importlib.util
import os
import random
from pathlib import Path

# Before any library that reads them is imported: nothing is downloaded in a test.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

torch.set_num_threads(1)

# Fresh examples every time, as many as a test says; a failure prints the blob that replays it.
settings.register_profile("posenc", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("posenc")

if os.environ.get("POSENC_CHECK_SHAPES"):  # test_shapes.py runs part of the suite with every signature checked
    install_import_hook("posenc", "shape_checker.check")


def define_missing_torchvision_operators() -> torch.library.Library | None:
    """Declare `nms` and `qnms` where torchvision's compiled library does not load.

    A torchvision built for another torch (CUDA against a CPU build) cannot be imported, because it describes these two
    operators before anything has declared them; and timm, self-attention-cv and most models of transformers import it.
    The peers never call them, so a declaration is enough. The library lives as long as the returned object does.
    """
    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return None
    for compiled in Path(package.submodule_search_locations[0]).glob("_C*"):
        try:
            torch.ops.load_library(str(compiled))
            return None
        except OSError:
            continue
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


TORCHVISION_OPERATORS = define_missing_torchvision_operators()


@pytest.fixture
def seed() -> int:
    """A fresh seed for `torch` and `random`, printed so that a failure can be run again with POSENC_SEED=<number>.

    For NumPy, `np.random.default_rng(seed)`.
    """
    given = os.environ.get("POSENC_SEED")
    value = int(given) if given else random.SystemRandom().randrange(2**32)
    print(f"POSENC_SEED={value}")
    torch.manual_seed(value)
    random.seed(value)
    return value
