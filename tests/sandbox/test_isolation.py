"""How many layers of isolation are enough, and what happens with fewer."""

import errno
import os
import re
import socket
import sys
import time
from pathlib import Path

import pytest

from vesalius.errors import Failed
from vesalius.sandbox import Sandbox, filesystem, warm_server
from vesalius.sandbox import kernel as seccomp
from vesalius.sandbox import sandbox as sandbox_module
from vesalius.sandbox.kernel import ALLOWED, CONDITIONAL, SUFFICIENT_VERSION, program
from vesalius.sandbox.warm_process import Isolation, WarmProcess

HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


@pytest.mark.parametrize(
    ("isolation", "enough"),
    [
        (Isolation(True, 7, True), True),
        (Isolation(True, 0, True), True),
        (Isolation(False, SUFFICIENT_VERSION, True), True),
        (Isolation(False, SUFFICIENT_VERSION - 1, True), False),
        (Isolation(True, 7, False), False),
        (Isolation(False, 0, True), False),
        (Isolation(), False),
    ],
)
def test_files_network_and_processes_must_all_be_restricted(isolation: Isolation, enough: bool) -> None:
    assert isolation.contained == enough
    assert str(isolation).startswith("contained by" if enough else "NOT contained")


@pytest.mark.parametrize("layers", [(), ("seccomp",), ("namespaces",), ("landlock",), ("namespaces", "landlock")])
def test_too_few_layers_are_refused_in_one_line(layers: tuple[str, ...]) -> None:
    with pytest.raises(Failed, match="unsafe=True") as refusal, Sandbox(layers=layers):
        pass
    assert "\n" not in str(refusal.value)
    assert "switched off" in str(refusal.value)


def test_a_kernel_without_any_layer_is_refused_unless_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unisolated(WarmProcess):
        def __init__(self, start: dict, **options: float) -> None:
            super().__init__({**start, "layers": []}, **options)

    monkeypatch.setattr(sandbox_module, "WarmProcess", Unisolated)
    with pytest.raises(Failed, match="cannot contain"), Sandbox():
        pass
    with Sandbox(unsafe=True) as sandbox:
        assert str(sandbox.isolation).startswith("NOT contained; active: none")
        assert sandbox.execute("result = 1").result == 1
        assert sandbox.execute("while True: pass", limits=sandbox_module.Limits(cpu_seconds=1)).stopped_by == "cpu"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_refused(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(Failed, match="use Linux"), Sandbox():
        pass


def test_of_the_package_only_loaded_modules_are_readable() -> None:
    """This process has the whole package loaded or on its path; files that are no loaded module are not listed."""
    readable = [Path(path).resolve() for path in filesystem.Opened.for_programs(None).readable()]
    packages = [package.resolve() for package in filesystem.PACKAGES]
    assert {package.name for package in packages} >= {"vesalius", "vesalius_functions", "vesalius_bench"}
    inside = {path for path in readable if any(map(path.is_relative_to, packages))}
    assert inside == {Path(file).resolve() for file in filesystem.loaded_files()}
    assert Path(filesystem.__file__).resolve() in inside
    assert not [path for path in readable for package in packages if package.is_relative_to(path)]


def test_another_copy_of_the_package_is_closed_too(tmp_path: Path) -> None:
    """A copy of the package in any directory of installed packages below an opened tree, and other packages too."""
    copy = tmp_path / "python3.9" / "site-packages" / "vesalius" / "circuits" / "key"
    copy.mkdir(parents=True)
    closed = filesystem.closed_directories([str(tmp_path)])
    assert str(copy.parents[2]) in closed
    assert filesystem._without(str(tmp_path), closed) == []


def test_installed_packages_are_opened_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "site-packages"
    names = ("numpy", "numpy.libs", "numpy-2.0.dist-info", "vesalius", "vesalius_bench", "vesalius-1.dist-info")
    names += ("wordlists", "six.py")
    for name in names:
        (directory / name).mkdir(parents=True)
    monkeypatch.setattr(filesystem, "installed_directories", lambda: [str(directory)])
    opened = {Path(path).name for path in filesystem.open_entries() if Path(path).parent == directory}
    assert opened == {"numpy", "numpy.libs", "numpy-2.0.dist-info", "six.py"}


def test_a_tree_is_opened_without_its_closed_directory(tmp_path: Path) -> None:
    for name in ("a/one", "a/key/secret", "b/two"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    paths = filesystem._without(str(tmp_path), [str(tmp_path / "a" / "key")])
    assert paths == [str(tmp_path / "a" / "one"), str(tmp_path / "b")]


def test_a_kernel_that_refuses_process_descriptors_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "refused")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    control, other = socket.socketpair()
    child = os.fork()
    if child == 0:
        os._exit(7)
    with control, other:
        assert warm_server.wait(control, child, time.monotonic() + 60)["status"] == 7


@pytest.mark.parametrize(("column", "machine"), list(enumerate(HEADERS)))
def test_call_numbers_are_the_kernels(column: int, machine: str) -> None:
    """Against the kernel's own headers, where they are installed."""
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    pattern = r"#define __NR(?:3264)?_(\w+) (\d+)"
    numbers = {name: int(number) for name, number in re.findall(pattern, header.read_text())}
    aliases = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    ours = {name: pair[column] for name, pair in ALLOWED.items()}
    ours |= {name: pair[0][column] for name, pair in CONDITIONAL.items()}
    for name, number in ours.items():
        assert numbers.get(aliases.get(name, name)) == number, name
    assert len(set(ours.values()) - {None}) == len([n for n in ours.values() if n is not None])


def evaluate(steps: list, machine: int, number: int, arguments: tuple[int, ...] = (0,) * 6) -> int:
    """A simple interpreter of the filter: run its instructions one by one."""
    at, loaded = 0, 0
    words = {0: number, 4: machine} | {16 + 8 * i: value & 0xFFFFFFFF for i, value in enumerate(arguments)}
    while True:
        code, if_true, if_false, value = steps[at]
        if code == 0x06:
            return value
        if code == 0x20:
            loaded = words[value]
            at += 1
        else:
            holds = loaded == value if code == 0x15 else loaded > value
            at += 1 + (if_true if holds else if_false)


ALLOW, KILL, EPERM, EAGAIN, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x0005000B, 0x00050026


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (0, (), ALLOW),  # read
        (41, (2, 1, 0), EPERM),  # socket
        (59, (), EPERM),  # execve
        (101, (), EPERM),  # ptrace
        (165, (), EPERM),  # mount
        (321, (), EPERM),  # bpf
        (57, (), EAGAIN),  # fork
        (56, (17,), EAGAIN),  # clone
        (56, (0x10000,), EAGAIN),  # clone of a thread
        (435, (), ENOSYS),  # clone3
        (1000, (), ENOSYS),
        (0x40000000, (), KILL),  # the x32 interface
        (62, (123, 9), ALLOW),  # kill itself
        (62, (1, 9), EPERM),
        (62, (-1, 9), EPERM),
        (72, (3, 3), ALLOW),  # fcntl F_GETFL
        (72, (3, 8), EPERM),  # fcntl F_SETOWN
        (16, (1, 0x5401), ALLOW),  # ioctl TCGETS
        (16, (1, 0x5412), EPERM),  # ioctl TIOCSTI
    ],
)
def test_the_filter(number: int, arguments: tuple[int, ...], expected: int) -> None:
    steps = program("x86_64", own_id=123)
    assert evaluate(steps, 0xC000003E, number, arguments) == expected
    assert evaluate(steps, 0x40000003, number, arguments) == KILL  # the 32-bit interface


def test_both_architectures_refuse_what_is_not_listed() -> None:
    for machine, code in seccomp._AUDIT_ARCH.items():
        steps = program(machine, own_id=2)
        column = list(HEADERS).index(machine)
        listed = {pair[column] for pair in ALLOWED.values()} | {pair[0][column] for pair in CONDITIONAL.values()}
        for number in range(451):
            allowed = evaluate(steps, code, number) == ALLOW
            assert not allowed or number in listed
        assert all(
            evaluate(steps, code, pair[column]) == ALLOW for pair in ALLOWED.values() if pair[column] is not None
        )
