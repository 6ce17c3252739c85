"""The packages that peers come in: whether they are installed, and how they are."""

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["INSTALLED_BY", "missing", "taken"]

INSTALLED_BY = {
    "x-transformers": "pip install x-transformers",
    "transformers": 'pip install "transformers==5.24.*" torchvision',
    "timm": "pip install timm torchvision",
    "self-attention-cv": "pip install self-attention-cv torchvision",
    "positional-encodings": "pip install positional-encodings",
    "rotary-embedding-torch": "pip install rotary-embedding-torch",
    "FlexAttention": 'pip install "torch>=2.6"',
}
"""Package -> the command that installs it."""

MODULES = {"FlexAttention": "torch.nn.attention.flex_attention"}


def missing(package: str) -> str:
    """Why a package cannot be used, and the command that installs it; empty where it is installed.

    >>> missing("FlexAttention")
    ''
    """
    module = MODULES.get(package, package.replace("-", "_"))
    if importlib.util.find_spec(module) is not None:
        return ""
    return f"{package} is not installed: {INSTALLED_BY[package]}"


def taken(module: str) -> Any:
    """A module of a peer's package."""
    _ready()
    return importlib.import_module(module)


@cache
def _ready() -> torch.library.Library | None:
    """Make torchvision importable, which timm, self-attention-cv and models of transformers import.

    One that was built for another torch describes two operators before its compiled library, which does not load, has
    declared them. No peer calls them, so that a declaration is enough.
    """
    package = importlib.util.find_spec("torchvision")
    folders = (package and package.submodule_search_locations) or []
    if not folders or hasattr(torch.ops.torchvision, "nms"):
        return None
    for compiled in Path(folders[0]).glob("_C*"):
        try:
            torch.ops.load_library(str(compiled))
        except OSError:
            continue
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
