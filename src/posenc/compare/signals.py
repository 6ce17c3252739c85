"""Images and series as tasks: what a token holds are numbers, and an example has one class."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from posenc.compare.data import Images, Series, Warn, split
from posenc.compare.tasks import Batch, Condition, Place, Task, digest, parts, shuffled

__all__ = ["ImageTask", "SeriesTask"]

LONGEST_SERIES = 128  # tokens; longer series have several steps a token


@dataclass(kw_only=True)
class ImageTask(Task):
    """Classify images whose patches are tokens, averaged over tokens at the end."""

    images: Images
    train: NDArray[Any]
    test: NDArray[Any]
    mean: float
    spread: float

    @classmethod
    def of(cls, images: Images, *, name: str, title: str, about: str, factors: tuple[float, ...], warn: Warn) -> "Task":
        """The task of some images."""
        train, test = split(images.labels, warn)
        pixels = images.pixels[train]
        task = cls(
            name=name,
            title=title,
            about=about,
            shape=images.shape,
            outputs=len(images.classes),
            factors=factors,
            batch_size=64,
            steps=220,
            values=images.patch**2 * images.pixels.shape[-1],
            shifts=(2, 64),
            images=images,
            train=train,
            test=test,
            mean=float(pixels.mean()),
            spread=float(pixels.std()) or 1.0,
        )
        task.fingerprint = digest(images.pixels, images.labels, images.patch, images.shape)
        return task

    @property
    def chance(self) -> float:
        return _largest_share(self.images.labels[self.test])

    def tokens(self, index: NDArray[Any], shape: tuple[int, ...]) -> Tensor:
        """Images resized so that their patches fill the shape, `[b, n, values]`."""
        patch = self.images.patch
        pixels = torch.from_numpy(self.images.pixels[index]).permute(0, 3, 1, 2)
        height, width = (size * patch for size in shape)
        if pixels.shape[-2:] != (height, width):
            pixels = F.interpolate(pixels, (height, width), mode="bilinear", antialias=True, align_corners=False)
        patches = F.unfold((pixels - self.mean) / self.spread, patch, stride=patch)  # [b, values, n], row-major
        return patches.transpose(1, 2).contiguous()

    def training(self, steps: int, seed: int) -> Iterator[Batch]:
        inputs = self.tokens(self.train, self.shape)
        targets = torch.from_numpy(self.images.labels[self.train])
        for index in shuffled(len(inputs), self.batch_size, steps, seed):
            yield Batch(inputs[index], targets[index], Place(self.shape))

    def held_out(self, condition: Condition) -> Iterator[Batch]:
        shape = self.scaled(condition.factor)
        for index in np.array_split(self.test, parts(len(self.test), math.prod(shape))):
            targets = torch.from_numpy(self.images.labels[index])
            yield Batch(self.tokens(index, shape), targets, self.place(condition, shape))


@dataclass(kw_only=True)
class SeriesTask(Task):
    """Classify series of any lengths, some time steps a token, averaged over tokens at the end."""

    series: list[NDArray[Any]]
    labels: NDArray[Any]
    train: NDArray[Any]
    test: NDArray[Any]
    stride: int

    @classmethod
    def of(cls, series: Series, *, name: str, title: str, about: str, factors: tuple[float, ...], warn: Warn) -> "Task":
        """The task of some series, standardised by what is trained on."""
        train, test = split(series.labels, warn)
        seen = np.concatenate([series.values[index] for index in train])
        spread = seen.std(axis=0)
        spread[spread == 0] = 1.0
        values = [((item - seen.mean(axis=0)) / spread).astype(np.float32) for item in series.values]
        longest = max(map(len, values))
        stride = -(-longest // LONGEST_SERIES)
        task = cls(
            name=name,
            title=title,
            about=about,
            shape=(-(-longest // stride),),
            outputs=len(series.classes),
            factors=factors,
            batch_size=64,
            steps=220,
            values=stride * values[0].shape[1],
            shifts=(8, 256),
            series=values,
            labels=series.labels,
            train=train,
            test=test,
            stride=stride,
        )
        task.fingerprint = digest(*values, series.labels, stride)
        return task

    @property
    def chance(self) -> float:
        return _largest_share(self.labels[self.test])

    def tokens(self, index: NDArray[Any], factor: float) -> tuple[Tensor, Tensor]:
        """Series stretched in time, cut into tokens and padded at the end: `[b, n, values]`, mask `[b, n]`."""
        rows = [_stretch(self.series[i], factor) for i in index]
        counts = [-(-len(row) // self.stride) for row in rows]
        padded = np.zeros((len(rows), max(counts) * self.stride, rows[0].shape[1]), dtype=np.float32)
        for row, into in zip(rows, padded, strict=True):
            into[: len(row)] = row
        inputs = torch.from_numpy(padded.reshape(len(rows), max(counts), -1))
        return inputs, torch.arange(max(counts)) < torch.tensor(counts)[:, None]

    def training(self, steps: int, seed: int) -> Iterator[Batch]:
        for index in shuffled(len(self.train), self.batch_size, steps, seed):
            chosen = self.train[index.numpy()]
            inputs, mask = self.tokens(chosen, 1.0)
            yield Batch(inputs, torch.from_numpy(self.labels[chosen]), Place(inputs.shape[1:2], mask=mask))

    def held_out(self, condition: Condition) -> Iterator[Batch]:
        for index in np.array_split(self.test, parts(len(self.test), self.scaled(condition.factor)[0])):
            inputs, mask = self.tokens(index, condition.factor)
            place = self.place(condition, tuple(inputs.shape[1:2]), mask)
            yield Batch(inputs, torch.from_numpy(self.labels[index]), place)


def _largest_share(labels: NDArray[Any]) -> float:
    """The share of the most common label."""
    return float(np.bincount(labels).max() / len(labels))


def _stretch(values: NDArray[Any], factor: float) -> NDArray[Any]:
    """Linear interpolation in time, cell centre to cell centre."""
    if factor == 1:
        return values
    length = max(1, round(len(values) * factor))
    at = (np.arange(length) + 0.5) * len(values) / length - 0.5
    known = np.arange(len(values))
    return np.stack([np.interp(at, known, channel) for channel in values.T], axis=1).astype(np.float32)
