"""seqloom.train.checkpoint: every byte comes back, every damage is named, and no kill or full disk costs the last good save."""

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from seqloom.files import NoRoom, lock_folder, with_digest
from seqloom.train import checkpoint
from seqloom.train.checkpoint import (
    average,
    estimated_bytes,
    latest,
    load,
    rotate,
    save,
    space_warning,
    verify,
)


def files(step, many=400):
    """Tensors that differ from step to step, of several types."""
    generator = torch.Generator().manual_seed(step)
    weights = {
        "embed": torch.randn(many, 5, generator=generator),
        "bias": torch.randn(7, generator=generator),
    }
    moments = {
        f"{name}.{kind}": torch.rand(w.shape, generator=generator)
        for name, w in weights.items()
        for kind in ("m", "v")
    }
    return {"model": weights, "optim": moments, "rng": {"cpu": generator.get_state()}}


def metadata(step):
    return {"epoch": step / 7, "seed": 3, "cursor": {"file": "a.txt", "at": step}}


def same(a, b):
    """Equal down to the bits, so that NaN equals NaN and -0.0 does not equal 0.0."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and bits(a[k]) == bits(b[k]) for k in a
    )


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def holds(found, step, many=400):
    """Whether a loaded checkpoint is exactly the one of `step`."""
    return (
        found.step == step
        and found.metadata == metadata(step)
        and all(same(found.tensors(n), t) for n, t in files(step, many).items())
    )


def never(message):
    raise AssertionError(f"no warning was due: {message}")


# What is saved comes back ------------------------------------------------------------------------------------------------------


def test_a_save_comes_back_whole(tmp_path):
    path = save(tmp_path / "a" / "ckpt", 20, files(20), metadata(20))
    assert path == tmp_path / "a" / "ckpt" / "step-00000020" and os.listdir(path.parent) == [path.name]
    assert verify(path) == [] and holds(load(path), 20) and holds(latest(path.parent, never), 20)


def test_the_manifest_lists_every_file_with_its_size_and_digest(tmp_path):
    path = save(tmp_path, 3, files(3), metadata(3))
    manifest = json.loads((path / "manifest.json").read_text())
    data = {f.name: f.read_bytes() for f in path.iterdir() if f.name != "manifest.json"}
    assert sorted(data) == ["model.safetensors", "optim.safetensors", "rng.safetensors", "state.json"]
    assert manifest["files"] == {
        name: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for name, d in data.items()
    }
    assert manifest["step"] == 3


def test_two_saves_of_the_same_state_are_the_same_bytes(tmp_path):
    one, two = save(tmp_path / "1", 5, files(5), metadata(5)), save(tmp_path / "2", 5, files(5), metadata(5))
    assert {f.name: f.read_bytes() for f in one.iterdir()} == {f.name: f.read_bytes() for f in two.iterdir()}


def test_files_are_as_readable_as_their_folder(tmp_path):
    path = save(tmp_path, 5, files(5), metadata(5))
    assert {stat.S_IMODE(f.stat().st_mode) for f in path.iterdir()} == {
        stat.S_IMODE(path.stat().st_mode) & 0o666
    }


DTYPES = [
    torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_tensor_round_trips_to_the_bit(tmp_path_factory, data):
    tensors = {}
    for i in range(data.draw(st.integers(0, 4))):
        dtype, shape = data.draw(st.sampled_from(DTYPES)), data.draw(st.lists(st.integers(0, 4), max_size=3))
        count = torch.Size(shape).numel() * dtype.itemsize
        raw = torch.tensor(list(data.draw(st.binary(min_size=count, max_size=count))), dtype=torch.uint8)
        tensor = (raw % 2).bool() if dtype == torch.bool else raw.view(dtype)
        tensors[f"t{i}"] = tensor.reshape(shape).permute(data.draw(st.permutations(range(len(shape)))))
    path = save(tmp_path_factory.mktemp("any"), 1, {"x": tensors}, {})
    assert same(load(path).tensors("x"), tensors)


def test_views_tied_and_lazy_tensors_are_saved_by_value(tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    wave = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    tensors = {
        "whole": base, "tied": base, "transposed": base.T, "row": base[1], "strided": base[:, ::2], "expanded": base[0].expand(3, 6),
        "scalar": base[0, 1], "empty": base[:0], "parameter": torch.nn.Parameter(base[2]), "conj": wave.conj(), "neg": wave.conj().imag,
    }  # fmt: skip
    back = load(save(tmp_path, 1, {"model": tensors}, {})).tensors("model")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[k], tensors[k].resolve_conj().resolve_neg()) for k in tensors)
    assert (tmp_path / "step-00000001" / "model.safetensors").stat().st_size < estimated_bytes(
        {"model": tensors}
    )


def test_loaded_tensors_may_be_changed_without_touching_the_checkpoint(tmp_path):
    path = save(tmp_path, 1, files(1), metadata(1))
    for tensor in load(path).tensors("model").values():
        tensor.zero_()
    assert verify(path) == [] and holds(load(path), 1)


def test_other_programs_can_read_the_weights(tmp_path):
    with safe_open(save(tmp_path, 1, files(1), metadata(1)) / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert file.get_tensor("embed").tobytes() == files(1)["model"]["embed"].numpy().tobytes()


# What may not be saved ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.float8_e5m2]
)
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, value, dtype):
    save(tmp_path, 1, files(1), metadata(1))
    bad = torch.zeros(3, 4)
    bad[1, 2] = value
    with pytest.raises(ValueError, match=r"'layer\.weight' holds 1 NaN or infinite"):
        save(tmp_path, 2, {"model": {"fine": torch.ones(2), "layer.weight": bad.to(dtype)}}, {})
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_other_files_may_hold_infinities_and_counters_are_no_weights(tmp_path):
    loose = {
        "model": {"count": torch.tensor(2**62), "on": torch.tensor(True)},
        "optim": {"best": torch.tensor(float("inf"))},
    }
    assert same(load(save(tmp_path, 1, loose, {})).tensors("optim"), loose["optim"])


@pytest.mark.parametrize("name", ["", "../model", "a/b", ".hidden", "a b", "x" * 65])
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="not a valid file name"):
        save(tmp_path, 1, {name: {}}, {})
    assert os.listdir(tmp_path) == []


def test_metadata_must_be_json_and_steps_not_negative(tmp_path):
    with pytest.raises(ValueError, match="JSON values"):
        save(tmp_path, 1, {}, {"model": object()})
    with pytest.raises(ValueError, match="0 or more"):
        save(tmp_path, -1, {}, {})
    for tensor in (torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(ValueError, match=r"x tensor 'odd' .* make it dense first"):
            save(tmp_path, 1, {"x": {"odd": tensor}}, {})
    with pytest.raises(ValueError, match="complex128"):
        save(tmp_path, 1, {"x": {"odd": torch.zeros(2, dtype=torch.complex128)}}, {})
    assert os.listdir(tmp_path) == []


def test_a_missing_part_is_named_with_what_there_is(tmp_path):
    with pytest.raises(ValueError, match=r"ema\.safetensors: .* it holds: model, optim, rng"):
        load(save(tmp_path, 1, files(1), metadata(1))).tensors("ema")


# Saving a step again -----------------------------------------------------------------------------------------------------------


def test_a_whole_step_is_never_overwritten(tmp_path):
    path = save(tmp_path, 1, files(1), metadata(1))
    assert save(tmp_path, 1, files(2), metadata(2)) == path
    assert holds(load(path), 1) and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    "make", [Path.touch, Path.mkdir, lambda p: p.symlink_to("nowhere"), lambda p: shutil.copytree(p.parent / "other", p)],
)  # fmt: skip
def test_a_damaged_step_is_replaced(tmp_path, make):
    other = save(tmp_path, 9, files(9), metadata(9)).rename(tmp_path / "other")
    (other / "optim.safetensors").unlink()
    make(tmp_path / "step-00000001")
    assert verify(tmp_path / "step-00000001")
    assert holds(load(save(tmp_path, 1, files(1), metadata(1))), 1)
    assert sorted(os.listdir(tmp_path)) == ["other", "step-00000001"]


# Damage ------------------------------------------------------------------------------------------------------------------------


def flipped(path, good, dice):
    file = dice.choice(sorted(path.iterdir()))
    data = bytearray(file.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
    return [file.name]


def truncated(path, good, dice):
    file = dice.choice(sorted(path.iterdir()))
    os.truncate(file, dice.randrange(file.stat().st_size))
    return [file.name]


def missing(path, good, dice):
    file = dice.choice(sorted(path.iterdir()))
    file.unlink()
    return [file.name]


def swapped(path, good, dice):
    """Two files of the checkpoint exchanged, or one taken from another checkpoint."""
    one, two = dice.sample(sorted(path.iterdir()), 2)
    if dice.random() < 0.5:
        shutil.copyfile(good / one.name, one)
        return [one.name]
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)
    names = [one.name, two.name]
    return (
        ["manifest.json"] if "manifest.json" in names else names
    )  # without its list nothing can be said of the others


def extra(path, good, dice):
    name = dice.choice(["model2.safetensors", ".hidden", "notes.txt", "folder", "link", "step-00000010"])
    if name == "folder":
        (path / name).mkdir()
    elif name == "link":
        (path / name).symlink_to(path / "state.json")
    else:
        (path / name).write_bytes(dice.randbytes(dice.randrange(50)))
    return [name]


@pytest.mark.parametrize("damage", [flipped, truncated, missing, swapped, extra], ids=lambda f: f.__name__)
def test_every_damage_is_named_and_the_checkpoint_before_is_used(tmp_path, damage, times=20):
    old, new = (save(tmp_path / "clean", step, files(step), metadata(step)) for step in (10, 20))
    detected = 0
    for seed in range(times):
        folder = tmp_path / str(seed)
        shutil.copytree(tmp_path / "clean", folder)
        victims = damage(folder / new.name, folder / old.name, random.Random(f"{damage.__name__} {seed}"))
        faults, warnings = verify(folder / new.name), []
        found = latest(folder, warnings.append)
        with pytest.raises(ValueError) as strict:
            latest(folder, never, strict=True)
        with pytest.raises(ValueError) as loaded:
            load(folder / new.name)
        places = [str(folder / new.name / name) + ":" for name in victims]
        named = all(
            p in text
            for p in places
            for text in ("\n".join(faults), warnings[0], str(strict.value), str(loaded.value))
        )
        detected += named and len(faults) == len(victims) and len(warnings) == 1 and holds(found, 10)
        shutil.rmtree(folder)
    assert detected == times


def test_every_bit_of_the_manifest_counts(tmp_path):
    path = save(tmp_path, 1, {"x": {}}, {})
    file = path / "manifest.json"
    whole = file.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            faults = verify(path)
            assert len(faults) == 1 and str(file) in faults[0]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"sha256": 1}',
        '{"files": [], "format": 1, "sha256": "", "step": 1}',
        "[" * 100_000,
        "\ufeff{}",
        "9" * 5000,
    ],
)
def test_a_manifest_of_another_form_is_a_fault_not_a_crash(tmp_path, content):
    path = save(tmp_path, 1, files(1), metadata(1))
    (path / "manifest.json").write_text(content)
    assert [f.startswith(str(path / "manifest.json")) for f in verify(path)] == [True]


def test_a_manifest_that_vouches_for_nonsense_is_not_believed(tmp_path):
    path = save(tmp_path, 1, files(1), metadata(1))

    def forge(**changes):
        (path / "manifest.json").write_bytes(with_digest({**body, **changes}))
        return "\n".join(verify(path))

    body = json.loads((path / "manifest.json").read_text())
    del body["sha256"]
    whole = body["files"]
    assert forge() == ""
    assert (
        "manifest.json" in forge(step="1")
        and "manifest.json" in forge(format=2)
        and "manifest.json" in forge(files={})
    )
    assert "belongs to step 2" in forge(step=2)
    secret = tmp_path / "secret"
    secret.write_text("x")
    entry = {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    assert "../secret: is missing" in forge(files={**whole, "../secret": entry})
    for nonsense in (b"[1]", b"{", b"[" * 100_000):
        (path / "state.json").write_bytes(nonsense)
        entry = {"size": len(nonsense), "sha256": hashlib.sha256(nonsense).hexdigest()}
        assert "state.json: is not a JSON object" in forge(files={**whole, "state.json": entry})


def test_faults_say_what_happened(tmp_path):
    path = save(tmp_path, 1, files(1), metadata(1))
    model, optim, rng = (path / f"{n}.safetensors" for n in ("model", "optim", "rng"))
    length = optim.stat().st_size
    os.truncate(optim, 100)
    shutil.copyfile(rng, model)
    rng.unlink()
    rng.mkdir()
    assert verify(path) == [
        f"{model}: holds the content of rng.safetensors.",
        f"{optim}: has 100 bytes instead of {length:,}.",
        f"{rng}: is not a regular file.",
    ]


def test_the_manifest_of_another_step_is_named_alone(tmp_path):
    one, two = (save(tmp_path, step, files(step), metadata(step)) for step in (1, 2))
    shutil.copyfile(one / "manifest.json", two / "manifest.json")
    assert verify(two) == [f"{two / 'manifest.json'}: belongs to step 1, not to this folder."]
    shutil.rmtree(two)
    shutil.copytree(one, two)
    assert len(verify(two)) == 1 and latest(tmp_path, lambda m: None).step == 1


def test_what_is_no_checkpoint_is_not_taken_for_one(tmp_path):
    assert latest(tmp_path / "nowhere", never) is None and latest(tmp_path, never) is None
    path = save(tmp_path, 7, files(7), metadata(7))
    for name in (
        ".tmp-9-ab",
        ".old-step-00000009-ab",
        "step-9",
        "step-000000009",
        "step-00000009.bak",
        "best",
    ):
        shutil.copytree(path, tmp_path / name)
    assert holds(latest(tmp_path, never), 7) and holds(load(tmp_path / "best"), 7)
    warnings = []
    (path / "state.json").unlink()
    assert latest(tmp_path, warnings.append) is None and "none of its 1 checkpoints is intact" in warnings[-1]
    with pytest.raises(ValueError, match="cannot be read"):
        load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="cannot be read"):
        latest(path / "manifest.json", never)


def test_steps_of_more_than_eight_digits_are_the_newest(tmp_path):
    for step in (99_999_999, 100_000_000):
        save(tmp_path, step, files(1), metadata(step))
    assert latest(tmp_path, never).step == 100_000_000


# Rotation ----------------------------------------------------------------------------------------------------------------------


def steps(folder):
    return sorted(int(name[5:]) for name in os.listdir(folder))


def test_rotation_keeps_the_newest_and_the_protected(tmp_path):
    for step in range(1, 7):
        save(tmp_path, step, files(step), metadata(step))
    rotate(tmp_path, keep=3, protect=[2, 5])
    assert steps(tmp_path) == [2, 4, 5, 6]
    rotate(tmp_path)
    assert steps(tmp_path) == [5, 6]
    rotate(tmp_path, keep=5)
    assert steps(tmp_path) == [5, 6]
    with pytest.raises(ValueError, match="at least 1"):
        rotate(tmp_path, keep=0)
    rotate(tmp_path / "nowhere")


def test_damaged_checkpoints_do_not_push_whole_ones_out(tmp_path):
    for step in range(1, 7):
        save(tmp_path, step, files(step), metadata(step))
    for step in (4, 6):
        (tmp_path / f"step-{step:08d}" / "state.json").write_text("{}")
    rotate(tmp_path, keep=2)
    assert steps(tmp_path) == [3, 4, 5, 6] and holds(latest(tmp_path, lambda m: None), 5)


def test_only_what_dead_writers_left_is_swept(tmp_path):
    for name in (".tmp-1-dead", ".tmp-1-alive", ".old-step-00000001-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "mine.txt").touch()
    with lock_folder(tmp_path / ".tmp-1-alive"):
        rotate(tmp_path)
        assert sorted(os.listdir(tmp_path)) == [".tmp-1-alive", "mine.txt"]
    save(tmp_path, 2, files(2), metadata(2))
    assert sorted(os.listdir(tmp_path)) == ["mine.txt", "step-00000002"]


def test_a_sweep_during_a_save_leaves_it_alone(tmp_path, monkeypatch):
    write = checkpoint.save_file

    def sweeping(*args, **options):
        rotate(tmp_path)
        write(*args, **options)

    monkeypatch.setattr(checkpoint, "save_file", sweeping)
    assert holds(load(save(tmp_path, 1, files(1), metadata(1))), 1)


# Averages ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_average_equals_the_exact_mean(tmp_path, dtype):
    values = [
        torch.randn(50, generator=torch.Generator().manual_seed(i)).to(dtype) * 10.0 ** (i - 2)
        for i in range(5)
    ]
    saved = [
        load(save(tmp_path, i, {"model": {"w": v, "n": torch.tensor(i)}}, {})) for i, v in enumerate(values)
    ]
    mean = average(saved)
    exact = torch.tensor([sum(float(v[j]) for v in values) / 5 for j in range(50)], dtype=torch.float64)
    assert mean["w"].dtype == dtype and torch.equal(mean["w"], exact.to(dtype)) and mean["n"] == 4
    assert same(average(saved[2:3]), saved[2].tensors("model"))


def test_average_of_complex_weights_and_of_another_file(tmp_path):
    saved = [
        load(save(tmp_path, i, {"ema": {"w": torch.tensor([i + 2j * i], dtype=torch.complex64)}}, {}))
        for i in (1, 2)
    ]
    assert torch.equal(average(saved, "ema")["w"], torch.tensor([1.5 + 3j], dtype=torch.complex64))


@pytest.mark.parametrize(
    "other",
    [{}, {"w": torch.zeros(3)}, {"w": torch.zeros(2).double()}, {"w": torch.zeros(2), "v": torch.zeros(2)}],
)
def test_only_like_checkpoints_are_averaged(tmp_path, other):
    saved = [load(save(tmp_path, i, {"model": t}, {})) for i, t in enumerate([{"w": torch.zeros(2)}, other])]
    with pytest.raises(ValueError, match=r"step-00000001: tensor '[vw]' is not as in .*step-00000000"):
        average(saved)
    with pytest.raises(ValueError, match="at least one"):
        average([])


# Killed at every instant -------------------------------------------------------------------------------------------------------

CALLS = ("mkdir", "open", "write", "fsync", "close", "chmod", "rename", "replace", "unlink", "rmdir")


def in_a_child_dying_at(call, work):
    """Run `work` in a process that dies just before its `call`-th system call (writes: half-way through); True if it died."""
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9), f"the child failed with {status}"
        return status == 9
    left = [call]

    def counted(real, half):
        def shim(*args, **options):
            left[0] -= 1
            if left[0] < 0:
                half(*args)
                os._exit(9)
            return real(*args, **options)

        return shim

    try:
        real_write = os.write
        for name in CALLS:
            half = (
                (lambda handle, data: real_write(handle, bytes(data)[: len(data) // 2]))
                if name == "write"
                else lambda *args: None
            )
            setattr(os, name, counted(getattr(os, name), half))
        fcntl.flock = counted(fcntl.flock, lambda *args: None)
        checkpoint.save_file = counted(
            checkpoint.save_file, lambda tensors, path, *rest: Path(path).write_bytes(b"\7" * 99)
        )
        work()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)


@pytest.mark.parametrize("case", ["first", "later", "damaged"])
def test_a_kill_at_any_call_leaves_a_whole_checkpoint(tmp_path, case):
    """`first` has nothing to fall back on; `later` also rotates; `damaged` replaces a damaged save of the same step."""
    points = 0
    while True:
        folder = tmp_path / str(points)
        for step in {"first": [], "later": [4, 10], "damaged": [10, 20]}[case]:
            save(folder, step, files(step, 20), metadata(step))
        if case == "damaged":
            (folder / "step-00000020" / "rng.safetensors").unlink()

        def work(folder=folder):
            save(folder, 20, files(20, 20), metadata(20))
            rotate(folder, keep=2)

        died = in_a_child_dying_at(points, work)
        found = latest(folder, (lambda m: None) if case == "damaged" else never)
        if found is None:
            assert case == "first" and died
        else:
            assert (
                holds(found, found.step, 20)
                and found.step in {"first": (20,), "later": (10, 20), "damaged": (10, 20)}[case]
            )
        assert died or found.step == 20
        if case == "later":
            assert not [fault for entry in folder.glob("step-*") for fault in verify(entry)], (
                "a half-deleted checkpoint keeps its name"
            )
        save(folder, 30, files(30, 20), metadata(30))
        assert not [name for name in os.listdir(folder) if not name.startswith("step-")], (
            "the next save sweeps what the dead one left"
        )
        assert holds(latest(folder, never), 30, 20)
        if not died:
            break
        points += 1
    assert points >= 30


def test_everything_is_flushed_before_the_rename_and_the_name_after_it(tmp_path, monkeypatch):
    """A power cut forgets what was not flushed: a kill cannot show that, the order of the calls can."""
    flushed, renamed = [], []
    fsync, rename = os.fsync, os.rename

    def recording_fsync(handle):
        fsync(handle)
        flushed.append((os.fstat(handle).st_ino, os.fstat(handle).st_size))

    def recording_rename(source, target):
        at_rename = {(entry.stat().st_ino, entry.stat().st_size) for entry in [source, *source.iterdir()]}
        renamed.append((target.name, at_rename - set(flushed)))
        flushed.clear()
        rename(source, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    save(tmp_path, 1, files(1), metadata(1))
    assert renamed == [("step-00000001", set())]
    assert [inode for inode, _ in flushed] == [tmp_path.stat().st_ino]


# Disks that refuse -------------------------------------------------------------------------------------------------------------

MANY = 20_000


@pytest.fixture
def disk(tmp_path):
    """Mounts a disk of a given number of bytes in memory; the test is skipped where that is not permitted."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", place],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
        return place

    try:
        yield mount
    finally:
        while os.path.ismount(place) and subprocess.run(["umount", "-l", place], check=False).returncode == 0:
            pass


def check_refusal(folder, caught, needed):
    """The message says how much is needed, nothing half-done is left, and the previous checkpoint is whole."""
    message = str(caught.value)
    assert (
        "step-00000020" in message
        and f"needs {needed:,} bytes" in message
        and "are free" in message
        and "\n" not in message
    )
    assert not [name for name in os.listdir(folder) if not name.startswith("step-")]
    found = latest(folder, never)
    assert holds(found, found.step, MANY)
    return found.step


def bytes_needed(step):
    return estimated_bytes(files(step, MANY)) + len(json.dumps(metadata(step), indent=1)) + 1


def taken(path):
    """Bytes a folder takes on a disk of 4 KiB pages."""
    return sum(-(-f.stat().st_size // 4096) * 4096 for f in path.iterdir())


@pytest.mark.parametrize("twentieths", range(20))
def test_a_full_disk_costs_nothing_but_the_new_save(tmp_path, disk, twentieths):
    footprint = taken(save(tmp_path, 10, files(10, MANY), metadata(10)))
    folder = disk(f"size={footprint + footprint * twentieths // 20}")
    save(folder, 10, files(10, MANY), metadata(10))
    assert "bytes and" in space_warning(folder, estimated_bytes(files(20, MANY)))
    with pytest.raises(NoRoom, match="the disk is full") as caught:
        save(folder, 20, files(20, MANY), metadata(20))
    assert check_refusal(folder, caught, bytes_needed(20)) == 10
    shutil.rmtree(folder / "step-00000010")
    assert holds(load(save(folder, 20, files(20, MANY), metadata(20))), 20, MANY)


def test_size_and_room_agree_with_the_disk(tmp_path, disk):
    path = save(tmp_path, 10, files(10, MANY), metadata(10))
    written = sum(f.stat().st_size for f in path.iterdir())
    assert written <= estimated_bytes(files(10, MANY)) <= 1.05 * written
    folder = disk(f"size={taken(path) * 12 // 10}")
    assert space_warning(folder / "to" / "come", estimated_bytes(files(10, MANY))) is None
    assert holds(load(save(folder, 10, files(10, MANY), metadata(10))), 10, MANY)
    assert f"needs {110:,} bytes" not in (
        space_warning(folder, 100) or ""
    ) and "needs 110,000,000 bytes" in space_warning(folder, 100_000_000)


def test_a_read_only_disk_is_said_to_be_one(disk):
    folder = disk("size=8m")
    save(folder, 10, files(10, MANY), metadata(10))
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    with pytest.raises(NoRoom, match="read-only") as caught:
        save(folder, 20, files(20, MANY), metadata(20))
    assert check_refusal(folder, caught, bytes_needed(20)) == 10


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EDQUOT, errno.EROFS, errno.ENOSPC, errno.EACCES], ids=errno.errorcode.get
)
def test_an_error_at_any_call_costs_nothing_but_the_new_save(tmp_path, monkeypatch, number):
    save(tmp_path / "clean", 10, files(10, MANY), metadata(10))
    points = 0
    while True:
        folder, left = tmp_path / str(points), [points]
        shutil.copytree(tmp_path / "clean", folder)

        def shim(name, real, left=left):
            def call(*args, **options):
                left[0] -= 1
                if left[0] != -1:
                    return real(*args, **options)
                if name == "save_file":  # the library's own way to say it
                    raise SafetensorError(
                        f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})"
                    )
                raise OSError(number, os.strerror(number))

            return call

        with monkeypatch.context() as patch:
            for name in ("mkdir", "open", "write", "fsync", "chmod", "rename"):
                patch.setattr(os, name, shim(name, getattr(os, name)))
            patch.setattr(checkpoint, "save_file", shim("save_file", checkpoint.save_file))
            try:
                path = save(folder, 20, files(20, MANY), metadata(20))
            except NoRoom as error:
                caught = pytest.ExceptionInfo.from_exception(error)
            else:
                assert left[0] >= 0 and holds(load(path), 20, MANY)  # past the last call: nothing failed
                break
        assert check_refusal(folder, caught, bytes_needed(20)) in (10, 20)
        shutil.rmtree(folder)
        points += 1
    assert points >= 20
