"""Real data: two sets that ship inside packages, and readers for one's own images, text and series.

Every reader returns plain arrays and says what it skipped through `warn`; what it cannot use at all is a `BadInput`.
"""

import io
import pickle
import sysconfig
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.compare.errors import BadInput

__all__ = ["Images", "Series", "Text", "digits", "read_images", "read_series", "read_text", "split", "standard_library"]

Warn = Callable[[str], None]
Array = NDArray[Any]
IMAGE_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
NO_TEXT = {".pyc", ".so", ".gz", ".zip", ".png", ".jpg", ".pdf"}
HELD_OUT = 0.2  # of the images and series
TEXT_HELD_OUT = 0.1


class Images(NamedTuple):
    """Pixels `[N, height, width, channels]` in 0 to 1, labels `[N]`, class names, pixels a token spans."""

    pixels: Array
    labels: Array
    classes: tuple[str, ...]
    patch: int
    shape: tuple[int, int]  # tokens, at the trained resolution


class Text(NamedTuple):
    """Characters to train on and characters held out."""

    train: str
    held_out: str


class Series(NamedTuple):
    """One `[time, channels]` array an example, labels `[N]`, class names."""

    values: list[Array]
    labels: Array
    classes: tuple[str, ...]


def digits() -> Images:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 grey pixels, every pixel a token."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = (bunch.images[..., None] / 16.0).astype(np.float32)
    return Images(pixels, bunch.target.astype(np.int64), tuple("0123456789"), patch=1, shape=(8, 8))


def standard_library() -> Text:
    """The source of the Python standard library's top-level modules; one file in ten is held out, whole."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py"))]
    return _hold_out([file for file in files if file])


def read_images(folder: Path, warn: Warn) -> Images:
    """A folder with one folder a class, each with images of any size, grey or in colour.

    All are resized to one resolution with the median aspect ratio, chosen so that a token is the smallest patch that
    leaves about a hundred tokens. They are kept at twice that resolution, for the evaluations beyond it.

    Raises BadInput for a folder that is missing, empty or of one class. An unreadable image is named and skipped.
    """
    from PIL import Image

    if not folder.is_dir():
        raise BadInput(f"--images needs a folder with one folder a class, got {folder}, which is no folder")
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found: list[tuple[str, Image.Image]] = []
    for place in classes:
        for path in sorted(place.rglob("*")):
            if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
                try:
                    found.append((place.name, _open(path)))
                except Exception as error:  # decoders raise nearly anything on a damaged file
                    warn(f"skipped {path}: not a readable image ({type(error).__name__})")
    for place in classes:
        if place.name not in {name for name, _ in found}:
            warn(f"{place} has no image that can be read: it is no class")
    if not found:
        raise BadInput(f"no images in the class folders of {folder}: expected {folder}/<class>/<image>.png or .jpg")
    names = sorted({name for name, _ in found})
    if len(names) < 2:
        raise BadInput(f"--images needs at least two classes, got one ({names[0]}) in {folder}: add a folder a class")
    height, width = (int(np.median([image.size[axis] for _, image in found])) for axis in (1, 0))
    shape, patch = _tokens(height, width)
    size = (2 * shape[1] * patch, 2 * shape[0] * patch)
    stack = np.stack([np.asarray(image.resize(size, Image.Resampling.BICUBIC)) for _, image in found])
    if (stack == stack[..., :1]).all():
        stack = stack[..., :1]  # grey
    labels = np.array([names.index(name) for name, _ in found], dtype=np.int64)
    return Images((stack / 255.0).astype(np.float32), labels, tuple(names), patch, shape)


def read_text(path: Path, warn: Warn, own: tuple[Path, ...] = ()) -> Text:
    """A UTF-8 file (its last tenth is held out), or a folder of them (one file in ten is held out, whole).

    Raises BadInput where nothing can be read. A file in a folder that is not UTF-8 is named and skipped. What this
    program writes there itself, `own`, is no text of the folder.
    """
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"--text needs UTF-8, got {path} with a bad byte at {error.start}: convert it") from None
        return _hold_out([text])
    if not path.is_dir():
        raise BadInput(f"--text needs a file or a folder, got {path}, which {_what(path)}")
    texts = []
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if any(file.resolve().is_relative_to(written.resolve()) for written in own):
            continue
        if hidden or not file.is_file() or file.suffix.lower() in NO_TEXT:
            continue
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, OSError) as error:
            warn(f"skipped {file}: not readable as UTF-8 ({type(error).__name__})")
    texts = [text for text in texts if text]
    if not texts:
        raise BadInput(f"no text in {path}: expected UTF-8 files")
    return _hold_out(texts)


def read_series(path: Path, warn: Warn) -> Series:
    """An `.npz` with `x`, `[N, T, C]` or an object array of `[T, C]` arrays, and labels `y`, `[N]`.

    Ragged series may also be padded at the end with NaN. Object arrays are read with an unpickler that knows NumPy
    arrays and nothing else, so that a file from elsewhere cannot run code.

    Raises BadInput for a missing file or array, shapes that disagree, numbers that are not finite, or one class.
    """
    arrays = _load_npz(path)
    for name in ("x", "y"):
        if name not in arrays:
            raise BadInput(f"--series needs arrays x and y, got {sorted(arrays) or 'none'} in {path}: save both")
    x, y = arrays["x"], arrays["y"]
    if x.dtype != object and x.ndim == 2:
        x = x[..., None]
    if x.dtype != object and x.ndim != 3:
        raise BadInput(f"x must be [N, T, C], or an object array of [T, C] arrays, got shape {x.shape} in {path}")
    if y.ndim != 1 or len(y) != len(x):
        raise BadInput(f"y must have one label a series, got {y.shape} labels for {len(x)} series in {path}")
    for index, label in enumerate(y):
        if not isinstance(label, str | bytes | int | float | np.generic) or label != label:
            raise BadInput(f"y must have a label for each series, got {label!r} at {index} in {path}: drop that series")
    values = [_one_series(item, index, path) for index, item in enumerate(x)]
    channels = {item.shape[1] for item in values}
    if len(channels) != 1:
        raise BadInput(f"every series must have the same channels, got {sorted(channels)} in {path}")
    names, labels = np.unique(y.astype(str), return_inverse=True)
    if len(names) < 2:
        raise BadInput(f"--series needs at least two classes, got one ({names[0] if len(names) else 'none'}) in {path}")
    return Series(values, labels.astype(np.int64), tuple(map(str, names)))


def split(labels: Array, warn: Warn) -> tuple[Array, Array]:
    """Indices to train on and indices held out: a fifth of each class, the same in every run."""
    generator = np.random.default_rng(0)
    train: list[int] = []
    test: list[int] = []
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        held = max(1, round(HELD_OUT * len(members))) if len(members) > 1 else 0
        if held == 0:
            warn(f"class {label} has one example: it is trained on, and not evaluated")
        test += members[:held].tolist()
        train += members[held:].tolist()
    if not test:
        raise BadInput("every class has a single example, so nothing is left to evaluate on: add examples")
    return np.array(sorted(train)), np.array(sorted(test))


def _what(path: Path) -> str:
    if path.is_dir():
        return "is a folder"
    return "is neither a file nor a folder" if path.exists() else "does not exist"


def _hold_out(texts: list[str]) -> Text:
    if len(texts) < 2:
        whole = "".join(texts)
        cut = len(whole) - int(TEXT_HELD_OUT * len(whole))
        return Text(whole[:cut], whole[cut:])
    order = np.random.default_rng(0).permutation(len(texts))
    wanted = TEXT_HELD_OUT * sum(map(len, texts))
    held: list[int] = []
    for index in order[:-1]:  # at least one file is trained on
        if sum(len(texts[i]) for i in held) >= wanted:
            break
        held.append(int(index))
    return Text(*("".join(texts[i] for i in order if (i in held) == side) for side in (False, True)))


def _open(path: Path) -> Any:
    from PIL import Image, ImageOps

    with Image.open(path) as file:
        image = ImageOps.exif_transpose(file)
        if image.mode == "F":
            raise ValueError("real numbers have no white: save it with 8 or 16 bits")
        if image.mode.startswith("I"):  # 16 bits a pixel, which convert() would clip to 255
            image = Image.fromarray((np.asarray(image, dtype=np.float64) / 257).clip(0, 255).astype(np.uint8))
        image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB")


def _tokens(height: int, width: int) -> tuple[tuple[int, int], int]:
    """The grid of tokens and the patch, for images of a size: the smallest patch with at most a hundred tokens."""
    for patch in (1, 2, 3, 4):
        shape = (max(2, -(-height // patch)), max(2, -(-width // patch)))
        if shape[0] * shape[1] <= 100:
            return shape, patch
    rows = min(16, max(4, round((64 * height / width) ** 0.5)))
    return (rows, max(4, round(64 / rows))), 4


def _one_series(item: Any, index: int, path: Path) -> Array:
    if np.asarray(item).dtype.kind not in "biufO":
        raise BadInput(
            f"series {index} in {path} holds no numbers but {np.asarray(item).dtype}: x must be real [T, C] arrays"
        )
    try:
        values = np.asarray(item, dtype=np.float64)  # float32 would lose what stands on a large offset
    except (TypeError, ValueError):
        raise BadInput(f"series {index} in {path} holds no numbers: x must be [T, C] arrays") from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise BadInput(f"series {index} in {path} must be [T, C], got shape {values.shape}")
    real = ~np.isnan(values).all(axis=1)
    values = values[: int(np.flatnonzero(real)[-1]) + 1] if real.any() else values[:0]
    if len(values) == 0 or not np.isfinite(values).all():
        raise BadInput(f"series {index} in {path} is empty or has numbers that are not finite: fill or drop them")
    return values


def _load_npz(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise BadInput(f"--series needs an .npz file, got {path}, which {_what(path)}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name in ("x.npy", "y.npy")]
            return {name[:-4]: _load_npy(archive.read(name)) for name in names}
    except (zipfile.BadZipFile, ValueError, pickle.UnpicklingError, EOFError, OSError) as error:
        raise BadInput(f"{path} is no readable .npz file ({error}): write it with numpy.savez") from None


def _load_npy(raw: bytes) -> Array:
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        return np.asarray(_ArraysOnly(stream).load(), dtype=object).reshape(shape)
    return np.asarray(np.load(io.BytesIO(raw), allow_pickle=False))


class _ArraysOnly(pickle.Unpickler):
    """Unpickles NumPy arrays and plain values; refuses to import anything else."""

    allowed: Iterable[str] = ("_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer")

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self.allowed:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")
