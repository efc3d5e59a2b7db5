"""TorchScript's own control flow, lists and numbers, called as the script itself."""

from typing import Dict, List, Optional  # noqa: UP035

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun.torch  # noqa: E402
from loadrun.base.errors import TraceError  # noqa: E402

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def rows(x, lengths):
    # type: (Tensor, Tensor) -> Tensor
    out = torch.zeros_like(x)
    for i in range(x.size(0)):
        n = int(lengths[i])
        out[i, :n] = x[i, :n]
    return out


def one(x, i):
    # type: (Tensor, Tensor) -> Tensor
    y = x.clone()
    k = int(i.item())
    y[k] = 0.0
    return y + x[k]


def until(x):
    # type: (Tensor) -> Tensor
    total = torch.zeros(1)
    for i in range(x.size(0)):
        if bool(x[i].sum() > 3):
            break
        total = total + x[i].sum()
    return total


def before(x):
    # type: (Tensor) -> Tensor
    last: Optional[Tensor] = None  # noqa: UP045
    for i in range(x.size(0)):
        now = x[i]
        if last is not None:  # noqa: SIM102
            if bool((now - last).max() < 0.5):
                break
        last = now
    assert last is not None
    return last


def first(x):
    # type: (Tensor) -> Tensor
    for i in range(x.size(0)):
        if bool(x[i].sum() > 3):
            return x[i]
    return x[0] * 0


def place(x):
    # type: (Tensor) -> int
    k = -1
    for i in range(x.size(0)):
        if bool(x[i].sum() > 3):
            k = i
            break
    return k


def repeats(x):
    # type: (Tensor) -> Tensor
    best = x.argmax(-1)
    keep = torch.ones_like(best, dtype=torch.bool)
    for i in range(1, best.size(0)):
        if bool(best[i] == best[i - 1]):
            keep[i] = False
    return best * keep


def filled(x):
    # type: (Tensor) -> Tensor
    out = torch.zeros(x.size(0))
    for i in range(x.size(0)):
        out[i] = x[i].sum()
        if bool(out[i] > 3):
            break
    return out


def lists(x):
    # type: (Tensor) -> Tensor
    items = [x, x + 1, x + 2]
    last, front = items.pop(), items.pop(0)
    items.extend([x * 2])
    items += [x * 3]
    items.insert(0, front)
    items.reverse()
    items[0] = last
    del items[1]
    numbers = [3, 1, 2]
    numbers.sort()
    numbers.remove(2)
    return torch.stack(items) * numbers[0] + numbers[1]


def dicts(x):
    # type: (Tensor) -> Tensor
    items: Dict[str, Tensor] = {}  # noqa: UP006
    items["a"] = x
    items["b"] = x + 1
    y = items.pop("a")
    z = items.get("c")
    items.update({"long": x * 2})
    for key, value in items.items():
        y = y + value * len(key)
    return y if z is None else z


def bits(x, b: int):
    # type: (Tensor, int) -> Tensor
    return x + (b | 8) + (b & 5) * 2 + (b ^ 5) * 3


def best_path(scores, moves):
    # type: (Tensor, Tensor) -> Tensor
    score = scores[0]
    back: List[Tensor] = []  # noqa: UP006
    for t in range(1, scores.size(0)):
        score, at = (score.unsqueeze(1) + moves + scores[t].unsqueeze(0)).max(0)
        back.append(at)
    best = score.argmax()
    path = [best]
    for t in range(len(back) - 1, -1, -1):
        best = back[t][best]
        path.append(best)
    path.reverse()
    return torch.stack(path)


X = torch.arange(12.0).reshape(3, 4) / 7
CASES = {
    rows: [(X, torch.tensor([1, 2, 4])), (X + 1, torch.tensor([4, 0, 3]))],
    one: [(X, torch.tensor(1)), (X, torch.tensor(-1))],
    until: [(X,), (X * 3,), (-X,)],
    before: [(X,), (-X,)],
    first: [(X,), (X * 3,), (-X,)],
    place: [(X,), (X * 3,), (-X,)],
    repeats: [(X,), (torch.rand(3, 4),)],
    filled: [(X,), (X * 9,), (-X,)],
    lists: [(X,)],
    dicts: [(X,)],
    bits: [(X, 7)],
    best_path: [(torch.rand(5, 3), torch.rand(3, 3)), (torch.rand(5, 3), torch.rand(3, 3))],
}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_scripts_are_followed(function):
    script = torch.jit.script(function)
    traced = loadrun.torch.trace(script, CASES[function][0])
    for args in CASES[function]:
        want, got = script(*args), traced(*args)
        assert got == want if isinstance(want, int) else torch.allclose(got, want) and got.dtype == want.dtype


def test_what_a_tensor_decides_changes_no_list():
    @torch.jit.script
    def grows(x):
        # type: (Tensor) -> Tensor
        items = {"a": x}
        if bool(x.sum() > 0):
            items["a"] = x * 2
        return items["a"]

    with pytest.raises(TraceError, match="how a list or dict changes depends on a tensor's value"):
        loadrun.torch.trace(grows, X)


def test_what_a_tensor_decides_writes_to_no_view_of_what_it_reads():
    @torch.jit.script
    def shares(x):
        # type: (Tensor) -> Tensor
        y = x.clone()
        row = y[0]
        if bool(x.sum() > 0):
            row.add_(1)
            return y * 2
        return y

    with pytest.raises(TraceError, match="share memory; clone one"):
        loadrun.torch.trace(shares, X)


def test_numbers_that_python_takes_from_tensors_are_said(capfd):
    with pytest.raises(TraceError, match=r"take t.item\(\) as an index, decide by torch.where"):
        loadrun.torch.trace(lambda x, i: x[int(i)], (X, torch.tensor(1)))
    assert capfd.readouterr().err == ""
