"""Samples, batches and transforms, against what MegEngine 1.13.0 gave for the same seeds."""

from __future__ import annotations

import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun.megengine.data as D
import loadrun.megengine.data.transform as T
from loadrun import LoadRunError, Tensor
from loadrun.megengine.data.dataset import MNIST, ArrayDataset, ConcatDataset, Dataset, StreamDataset
from loadrun.megengine.data.transform import Transform
from loadrun.megengine.data.transform.vision import functional as F
from tests.support.transforms import ORDER, applied, sample

RECORDED = Path(__file__).parents[1] / "data" / "transforms.npz"


@pytest.mark.parametrize("opencv", [True, False])
def test_transforms_give_what_megengine_gives(opencv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    without = set()
    if opencv:
        pytest.importorskip("cv2", reason="OpenCV resizes")
    else:
        monkeypatch.setitem(sys.modules, "cv2", None)
        without = {"hue", "jitter"}
    got = applied("loadrun.megengine", without)
    with np.load(RECORDED) as want:
        names = {name for name in want.files if name.split("/")[0] not in without}
        assert set(got) == names
        for name in names:
            assert got[name].dtype == want[name].dtype, name
            if got[name].dtype == np.uint8:
                # Releases of OpenCV round interpolated and converted pixels differently by one.
                difference = np.abs(got[name].astype(int) - want[name].astype(int))
                assert difference.max(initial=0) <= 1, name
            else:
                resized = name.startswith("shuffled") and name.endswith(("/0.0", "/1.0"))
                np.testing.assert_allclose(got[name], want[name], 1e-6, 0.25 if resized else 0, err_msg=name)


def test_orders() -> None:
    with pytest.raises(ValueError, match="batch is not part"):
        T.Normalize(order=["batch"])
    with pytest.raises(ValueError, match="sequence"):
        T.Normalize(order=3)
    with pytest.raises(NotImplementedError, match="depth"):
        T.Normalize(order=["depth"])
    image = np.full((2, 2, 1), 6.0, "float32")
    assert T.Normalize(2, 4).apply(image).tolist() == [[[1.0]] * 2] * 2
    first, second = T.Normalize(2, 4).apply((image, "label"))
    assert (first.shape, second) == ((2, 2, 1), "label")
    assert T.Normalize(2, 4, order=ORDER).order == ORDER


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: T.Pad((1, 2, 3)), "size is one number"),
        (lambda: T.Pad(1, mask_value=1.5), "mask_value should be an integer"),
        (lambda: T.HueTransform(0.6), r"hue value should be in \[0.0, 0.5\]"),
        (lambda: T.BrightnessTransform(-1), "brightness value should be non-negative"),
        (lambda: T.Lighting(-1), "lighting scale should be non-negative"),
        (lambda: T.ShortestEdgeResize(3, 4, "x"), "unsupported sample style"),
        (lambda: T.ToMode("HWC"), "unsupported mode"),
        (lambda: T.RandomResizedCrop(3, (2, 1)), "scale_range should be of kind"),
        (lambda: T.CenterCrop(20).apply(sample(0)[0]), "bigger than image size"),
        (lambda: T.Compose([], True, [(1,)]), "cannot be shuffled"),
        (lambda: T.VisionTransform().apply(sample(0)[0]), "does not say what becomes of images"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, text: str) -> None:
    with pytest.raises(LoadRunError, match=text):
        make()


def test_whole_batches() -> None:
    done: list[str] = []

    class Noting(T.VisionTransform):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def _apply_image(self, image: Any) -> Any:
            done.append(self.name)
            return image

    steps = [Noting("a"), Noting("b")]
    batch = [(sample(0)[0],), (sample(1)[0],)]
    T.Compose(steps, batch_compose=True).apply_batch(batch)
    T.Compose(steps).apply_batch(batch)
    assert "".join(done) == "aabb" + "abab"


def test_images_of_two_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 dims"):
        F.flip(np.zeros((2, 2)), 1)
    assert F.to_bgr(np.zeros((2, 3, 1), "uint8")).shape == (2, 3, 3)
    assert F.to_gray(np.zeros((2, 3, 3), "uint8")).shape == (2, 3, 1)


DATA = ArrayDataset(np.arange(11), np.arange(22).reshape(11, 2))


@pytest.mark.parametrize(
    ("sampler", "batches"),
    [
        (D.SequentialSampler(DATA, 4), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
        (D.SequentialSampler(DATA, 4, True), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (D.SequentialSampler(DATA, 2, indices=[3, 1, 2]), [[3, 1], [2]]),
        # Drawn by MegEngine 1.13.0.
        (D.RandomSampler(DATA, 4, seed=3), [[5, 4, 1, 2], [9, 6, 7, 0], [3, 8, 10]]),
        (D.RandomSampler(DATA, 2, world_size=2, rank=1), [[9, 10], [1, 8], [0, 4]]),
        (
            D.ReplacementSampler(DATA, 2, num_samples=7, weights=list(range(1, 12)), seed=1),
            [[6, 9], [0, 5], [3, 3], [4]],
        ),
    ],
)
def test_samplers(sampler: Any, batches: list[list[int]]) -> None:
    assert list(sampler) == batches


def test_lengths() -> None:
    assert [len(D.SequentialSampler(DATA, 4, last)) for last in (False, True)] == [3, 2]
    infinite = D.Infinite(D.SequentialSampler(DATA, 6))
    assert [len(next(infinite)) for _ in range(4)] == [6, 5, 6, 5]
    assert len(infinite) == 2**63 - 1
    assert infinite.batch_size == 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.SequentialSampler(DATA, 0),
        lambda: D.SequentialSampler(DATA, True),
        lambda: D.SequentialSampler(DATA, 2, 1),  # type: ignore[arg-type]
        lambda: D.SequentialSampler(DATA, 12),
        lambda: D.ReplacementSampler(DATA, num_samples=-1),
        lambda: D.ReplacementSampler(DATA, weights=[1]),
        lambda: D.RandomSampler(DATA, indices=3),
        lambda: ArrayDataset([1], [1, 2]),
        lambda: D.DataLoader(DATA, num_workers=-1),
    ],
)
def test_numbers_that_do_not_fit(make: Any) -> None:
    with pytest.raises(ValueError, match=r"found|there are|lengths"):
        make()


class Stream(StreamDataset):
    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        yield from ((np.full(2, i), i) for i in range(5))


def test_loaders() -> None:
    loader = D.DataLoader(DATA, D.SequentialSampler(DATA, 4, True), num_workers=2)
    first, second = next(iter(loader))
    assert first.tolist() == [0, 1, 2, 3]
    assert second.shape == (4, 2)
    assert len(loader) == 2
    assert len(list(D.DataLoader(DATA))) == 11
    found = list(D.DataLoader(Stream(), D.StreamSampler(2)))
    assert [b[1].tolist() for b in found] == [[0, 1], [2, 3]]
    with pytest.raises(AssertionError, match="do not match"):
        D.DataLoader(Stream(), D.SequentialSampler(DATA))
    with pytest.raises(AssertionError, match="expected a Dataset"):
        D.DataLoader([1, 2])


Pair = namedtuple("Pair", ["x", "y"])


def test_collators() -> None:
    join = D.Collator().apply
    assert join([Pair(1, 2.0), Pair(3, 4.0)]).y.dtype == np.float64
    assert join([{"a": np.ones(2)}, {"a": np.zeros(2)}])["a"].tolist() == [[1, 1], [0, 0]]
    assert join([np.float32(1), np.float32(2)]).dtype == np.float32
    assert join(["a", "b"]) == ["a", "b"]
    for wrong in (np.array(["a"]), object()):
        with pytest.raises(TypeError, match="batches are made of"):
            join([wrong])


def test_datasets() -> None:
    both = ConcatDataset([ArrayDataset([1, 2]), ArrayDataset([3])])
    assert [both[i][0] for i in (0, 2, -1, -3)] == [1, 3, 3, 1]
    assert len(both) == 3
    with pytest.raises(ValueError, match="length"):
        both[-4]
    for wrong in ([], [Stream()]):
        with pytest.raises(AssertionError, match=r"empty|StreamDataset"):
            ConcatDataset(wrong)
    for what in (lambda: Stream()[0], lambda: len(Stream())):
        with pytest.raises(AssertionError, match="StreamDataset"):
            what()
    assert issubclass(MNIST, Dataset)
    with pytest.raises(LoadRunError, match="downloads and unpacks no datasets"):
        MNIST()


def test_preloaded_batches_hold_tensors() -> None:
    Pair = namedtuple("Pair", "first second")

    class Samples(Dataset):
        def __init__(self) -> None: ...

        def __getitem__(self, i: int) -> Any:
            return Pair(np.float32([i, i]), {"name": f"n{i}", "label": (i, 2.5)})

        def __len__(self) -> int:
            return 3

    data = Samples()
    loader = D.DataLoader(data, D.SequentialSampler(data, 2), preload=True)
    first, second = loader
    assert type(first) is Pair
    assert isinstance(first.first, Tensor)
    assert first.first.tolist() == [[0, 0], [1, 1]]
    label = first.second["label"]
    assert (type(label), [x.tolist() for x in label]) == (list, [[0, 1], [2.5, 2.5]])
    assert (list(first.second["name"]), second.first.tolist()) == (["n0", "n1"], [[2, 2]])


class Numbers(StreamDataset):
    """Numbers, of which one does not come before an event."""

    def __init__(self, blocked: int = -1) -> None:
        self.blocked = blocked
        self.released = threading.Event()
        self.ended = threading.Event()

    def __iter__(self) -> Iterator[int]:
        try:
            for i in range(6):
                if i == self.blocked:
                    self.released.wait(60)
                yield i
            raise ValueError("no more")
        finally:
            self.ended.set()


def test_a_stream_that_does_not_come() -> None:
    stream = Numbers(blocked=3)
    batches = iter(D.DataLoader(stream, D.StreamSampler(2), timeout=1))
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(
        RuntimeError, match="dataloader timeout: a sample of the Numbers took longer than 1 s"
    ):
        next(batches)
    stream.released.set()


def test_a_stream_in_time() -> None:
    stream = Numbers()
    batches = iter(D.DataLoader(stream, D.StreamSampler(2), timeout=60))
    assert [next(batches).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match="no more"):
        next(batches)
    assert stream.ended.is_set()


class Waiting(Transform):
    """Waits for an event at one sample, fails at another."""

    def __init__(self, blocked: int = -1, failing: int = -1) -> None:
        self.blocked, self.failing = blocked, failing
        self.released = threading.Event()

    def apply(self, input: Any) -> Any:
        if input[0] == self.blocked:
            self.released.wait(60)
        if input[0] == self.failing:
            raise KeyError("no such sample")
        return input


def test_errors_and_timeouts_of_workers_are_those_of_megengine() -> None:
    data = ArrayDataset([0, 1, 2, 3, 4, 5])
    sampler = D.SequentialSampler(data, 2)
    batches = iter(D.DataLoader(data, sampler, Waiting(failing=5), num_workers=2, timeout=60))
    assert [next(batches)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(
        RuntimeError, match=r"^Caught KeyError in DataLoader worker process 0\.\nOriginal Traceback"
    ) as caught:
        next(batches)
    assert str(caught.value).rstrip().endswith("KeyError: 'no such sample'")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(KeyError, match="no such sample"):
        list(D.DataLoader(data, sampler, Waiting(failing=5)))
    blocking = Waiting(blocked=2)
    batches = iter(D.DataLoader(data, sampler, blocking, num_workers=1, timeout=1))
    assert next(batches)[0].tolist() == [0, 1]
    with pytest.raises(
        RuntimeError, match="dataloader timeout: a batch of the ArrayDataset took longer than 1 s"
    ):
        next(batches)
    blocking.released.set()
    ended = list(D.DataLoader(data, sampler, num_workers=3, timeout=60))
    assert [batch[0].tolist() for batch in ended] == [[0, 1], [2, 3], [4, 5]]
    streamed = D.DataLoader(Numbers(), D.StreamSampler(4), num_workers=1, timeout=60)
    with pytest.raises(RuntimeError, match="Caught ValueError in DataLoader worker process 0"):
        list(streamed)


class Shared(StreamDataset):
    """The numbers to 10, of which each worker gives its share."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        info = D.dataloader.get_worker_info()
        assert info is not None
        yield from (
            (np.array([k]), np.array([info.idx, info.worker])) for k in range(info.idx, 11, info.worker)
        )


def test_workers_of_a_parallel_stream_give_their_shares_as_in_megengine() -> None:
    loader = D.DataLoader(Shared(), D.StreamSampler(2), num_workers=2, parallel_stream=True)
    batches = [[numbers[:, 0].tolist(), asked.tolist()] for numbers, asked in loader]
    first, second = [0, 2], [1, 2]
    assert batches == [
        [[0, 2], [first, first]],
        [[1, 3], [second, second]],
        [[4, 6], [first, first]],
        [[5, 7], [second, second]],
        [[8, 10], [first, first]],
        [[9], [second]],
    ]
    assert D.dataloader.get_worker_info() is None
