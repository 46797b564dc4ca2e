# ruff: noqa: E501  (attacks are one line each)
"""Hostile commands: programs of any language that try to reach what their caller has. Each attack is one program that
says `ESCAPED` and what it got; none may, with all layers, without namespaces, and for a user without root.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vesalius
from tests.processes import PATIENCE, until_gone
from tests.sandbox.conftest import SECRET, family
from tests.sandbox.more_attacks import MORE
from vesalius.errors import BadInput, Failed
from vesalius.sandbox import command as command_module
from vesalius.sandbox import command_files, launcher
from vesalius.sandbox.command import Confined, Grants, Usage
from vesalius.sandbox.command_files import opened_for
from vesalius.sandbox.launcher import CommandLimits
from vesalius.sandbox.warm_process import LAYERS

PACKAGE = Path(vesalius.__file__).parent
WITHOUT_NAMESPACES = ("landlock", "seccomp")
SMALL = CommandLimits(cpu_seconds=20, memory_bytes=512 << 20, processes=40, file_bytes=1 << 20, scratch_bytes=4 << 20)

#: What every attack starts with: `{...}` of `places` are filled in, and what it got is printed.
PRELUDE = """
import ctypes, os, signal, socket, subprocess, sys
def attempt(action):
    try:
        got = action()
    except BaseException as error:
        return
    if got:
        print("ESCAPED", repr(got)[:300], flush=True)
libc = ctypes.CDLL(None, use_errno=True)
def read(path):
    return open(path, "rb").read(4096)
"""
#: Name, program. `canary` holds the secret, `victim` is a process of the caller with the secret in its environment.
ATTACKS = {
    "read a file of the caller": "attempt(lambda: read({canary!r}))",
    "list the caller's folder": "attempt(lambda: os.listdir({outside!r}))",
    "read through a link that it makes": "os.symlink({canary!r}, os.environ['TMPDIR'] + '/l')\nattempt(lambda: read(os.environ['TMPDIR'] + '/l'))",
    "read through a hard link": "os.link({canary!r}, os.environ['TMPDIR'] + '/h')\nattempt(lambda: read(os.environ['TMPDIR'] + '/h'))",
    "read the key's files": "attempt(lambda: read({key!r}))",
    "read the key's compiled files": "attempt(lambda: [read(os.path.join({key_cache!r}, n)) for n in os.listdir({key_cache!r})])",
    "import the key": "sys.path.insert(0, {source!r})\nattempt(lambda: __import__('vesalius_truth.key').key.__file__)",
    "import the package": "attempt(lambda: __import__('vesalius').__file__)",
    "run the package": "attempt(lambda: subprocess.check_output([{python!r}, '-m', 'vesalius', '--version']))",
    "read the passphrase by its name": "attempt(lambda: read({passphrase!r}))",
    "find the passphrase in its parents' command lines": "attempt(lambda: [read(f'/proc/{{p}}/cmdline') for p in (os.getppid(), {victim}, {caller})])",
    "read the environment of the caller": "attempt(lambda: read('/proc/{caller}/environ'))",
    "read the environment of another process": "attempt(lambda: read('/proc/{victim}/environ'))",
    "read every environment": "attempt(lambda: [read(f'/proc/{{p}}/environ') for p in range(1, 4000) if os.path.exists(f'/proc/{{p}}')])",
    "read its launcher's memory": "attempt(lambda: open(f'/proc/{{launcher}}/mem', 'rb').read(1))",
    "read the caller's memory": "attempt(lambda: open('/proc/{caller}/mem', 'rb').read(1))",
    "follow the caller's working directory": "attempt(lambda: os.listdir('/proc/{caller}/cwd/'))",
    "reopen the caller's descriptors": "attempt(lambda: [os.open(f'/proc/{caller}/fd/{{n}}', os.O_RDONLY) for n in range(3)])",
    "leave through its own root": "attempt(lambda: os.listdir('/proc/self/root/proc') or os.listdir('/proc/1/root'))",
    "use descriptors that were left open": "attempt(lambda: [n for n in range(3, 250) if libc.fcntl(n, 1) >= 0])",
    "find provider keys in its environment": "attempt(lambda: [v for v in os.environ.values() if 'canary-' in v or 'sk-' in v])",
    "find them in what a shell inherits": "attempt(lambda: b'canary-' in subprocess.check_output(['sh', '-c', 'env']))",
    "connect to the caller's server": "attempt(lambda: socket.create_connection(('127.0.0.1', {port}), 2))",
    "connect to its unix socket": "s = socket.socket(socket.AF_UNIX)\nattempt(lambda: (s.connect({unix_socket!r}), 'in')[1])",
    "listen": "attempt(lambda: socket.create_server(('0.0.0.0', 0)))",
    "send datagrams": "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port})))",
    "talk to the kernel": "attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
    "open a raw socket": "attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
    "resolve a name": "attempt(lambda: socket.getaddrinfo('example.org', 80))",
    "let a shell connect": "attempt(lambda: subprocess.call(['bash', '-c', 'echo x > /dev/tcp/127.0.0.1/{port}'], stderr=-3) == 0)",
    "kill the caller": "attempt(lambda: os.kill({victim}, 9) is None)",
    "signal its launcher": "attempt(lambda: os.kill(launcher, 9) is None and os.kill(launcher, 0) is None)",
    "signal everybody": "attempt(lambda: os.kill(-1, 15))",
    "trace a process": "attempt(lambda: libc.ptrace(16, {victim}, 0, 0) == 0)",
    "trace its launcher": "attempt(lambda: libc.ptrace(16, launcher, 0, 0) == 0)",
    "read another memory by a call": "b = ctypes.create_string_buffer(8)\nv = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8)\nattempt(lambda: libc.process_vm_readv({victim}, v, 1, v, 1, 0) > 0)",
    "take another's descriptor": "attempt(lambda: (p := libc.syscall(434, {victim}, 0)) >= 0 and libc.syscall(438, p, 0, 0) >= 0)",
    "write beside itself": "attempt(lambda: open({outside!r} + '/new', 'w'))",
    "change the caller's file": "attempt(lambda: open({canary!r}, 'a'))",
    "remove the caller's file": "attempt(lambda: os.unlink({canary!r}) is None)",
    "truncate the caller's file": "attempt(lambda: os.truncate({canary!r}, 0) is None)",
    "change its mode": "attempt(lambda: os.chmod({canary!r}, 0o777) is None)",
    "change its times": "attempt(lambda: os.utime({canary!r}, (0, 0)) is None)",
    "rename it": "attempt(lambda: os.rename({canary!r}, {canary!r} + '2') is None)",
    "change its own script": "attempt(lambda: open(sys.argv[0], 'a'))",
    "write into the system": "attempt(lambda: open('/usr/bin/new', 'w'))",
    "write into /tmp": "attempt(lambda: open('/tmp/vesalius-new', 'w'))",
    "start a namespace": "attempt(lambda: libc.unshare(0x10000000) == 0)",
    "clone into a namespace": "attempt(lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) > 0)",
    "mount": "attempt(lambda: libc.mount(b'none', os.environ['TMPDIR'].encode(), b'tmpfs', 0, None) == 0)",
    "change the root": "attempt(lambda: libc.chroot(b'/') == 0)",
    "become root": "attempt(lambda: libc.setuid(0) == 0 and os.getuid() == 0 and read({canary!r}))",
    "run a program that becomes root": "attempt(lambda: subprocess.check_output(['su', '-c', 'cat ' + {canary!r}], stderr=-3, stdin=-3))",
    "load a program into the kernel": "attempt(lambda: libc.syscall(321, 0, 0, 0) >= 0)",
    "use io_uring": "p = ctypes.create_string_buffer(256)\nattempt(lambda: libc.syscall(425, 1, p) >= 0)",
    "open by handle": "attempt(lambda: libc.syscall(304, -100, ctypes.create_string_buffer(64), 0) >= 0)",
    "read the kernel's keys": "attempt(lambda: libc.syscall(250, 0, -3, 1) > 0)",
    "raise its limits": "import resource\nattempt(lambda: resource.setrlimit(resource.RLIMIT_NPROC, (10**5, 10**5)) is None)",
    "read the loader's directories of homes": "attempt(lambda: [n for p in ('/root', '/home') if os.path.isdir(p) for n in os.listdir(p) if n != '.pyenv'])",
    "read password files": "attempt(lambda: read('/etc/shadow') or read('/etc/passwd'))",
    "find sockets of services": "attempt(lambda: os.listdir('/run') or os.listdir('/var/run'))",
    "read shared memory": "attempt(lambda: os.listdir('/dev/shm'))",
    "read a disk": "attempt(lambda: read('/dev/vda') or read('/dev/sda'))",
    "call by openat2": "h = (ctypes.c_uint64 * 3)()\nattempt(lambda: libc.syscall(437, -100, {canary!r}.encode(), h, 24) >= 0)",
    "make any socket": "def made(f, t):\n    try:\n        return socket.socket(f, t).family\n    except OSError:\n        return None\nattempt(lambda: [f for f in range(1, 46) for t in (1, 2, 3, 5) if made(f, t)])",
    "reach the host of a virtual machine": "attempt(lambda: socket.socket(40, 1).connect((2, 1)) is None)",
    "connect to an abstract socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + 'x') is None)",
    "mount by the new calls": "attempt(lambda: libc.syscall(430, b'tmpfs', 0) >= 0 or libc.syscall(428, -100, b'/', 1) >= 0)",
    "clone3 into a namespace": "a = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17)\nattempt(lambda: libc.syscall(435, a, 64) > 0)",
    "enter its launcher's namespaces": "attempt(lambda: (p := libc.syscall(434, launcher, 0)) >= 0 and libc.setns(p, 0x20000) == 0)",
    "signal by a handle": "attempt(lambda: (p := libc.syscall(434, {victim}, 0)) >= 0 and libc.syscall(424, p, 9, None, 0) == 0)",
    "write another memory by a call": "b = ctypes.create_string_buffer(8)\nv = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8)\nattempt(lambda: libc.process_vm_writev({victim}, v, 1, v, 1, 0) > 0)",
    "compare processes": "attempt(lambda: libc.syscall(312, os.getpid(), {victim}, 0, 0, 0) >= 0)",
    "limit another process": "l = (ctypes.c_uint64 * 2)(0, 0)\nattempt(lambda: libc.syscall(302, {victim}, 7, l, None) == 0)",
    "slow another process down": "attempt(lambda: os.setpriority(0, {victim}, 19) is None)",
    "pin another process": "attempt(lambda: os.sched_setaffinity({victim}, [0]) is None)",
    "watch the caller's file": "attempt(lambda: libc.inotify_add_watch(libc.inotify_init(), {canary!r}.encode(), 0xFFF) >= 0)",
    "watch the whole system": "attempt(lambda: libc.syscall(300, 0, 0) >= 0)",
    "read the kernel's log": "b = ctypes.create_string_buffer(4096)\nattempt(lambda: libc.klogctl(3, b, 4096) > 0 or read('/dev/kmsg'))",
    "measure the machine": "a = ctypes.create_string_buffer(128)\na[4] = 120\nattempt(lambda: libc.syscall(298, a, -1, 0, -1, 0) >= 0)",
    "handle its own faults": "attempt(lambda: libc.syscall(323, 0) >= 0)",
    "add a key to the kernel": "attempt(lambda: libc.syscall(248, b'user', b'x', b'y', 1, -4) > 0)",
    "open a queue of messages": "attempt(lambda: libc.syscall(240, b'vesalius', 0o102, 0o600, None) >= 0)",
    "make a device": "import stat\nd = os.environ['TMPDIR'] + '/d'\nattempt(lambda: os.mknod(d, stat.S_IFBLK | 0o600, os.makedev(254, 0)) or read(d))",
    "open devices": "for n in ('tty', 'kvm', 'fuse', 'mem', 'vsock', 'net/tun', 'ptmx', 'loop0', 'loop-control'):\n    attempt(lambda: os.open('/dev/' + n, os.O_RDWR) >= 0)",
    "change the terminal's discipline": "import fcntl\nattempt(lambda: fcntl.ioctl(0, 0x5423, b'\\0\\0\\0\\0') == 0 or fcntl.ioctl(0, 0x541C, b'\\2') == 0)",
    "rename the machine": "attempt(lambda: libc.sethostname(b'mine', 4) == 0)",
    "set the clock": "import time\nattempt(lambda: time.clock_settime(0, 0) is None)",
    "reach the hardware": "attempt(lambda: libc.iopl(3) == 0 or libc.ioperm(0x70, 2, 1) == 0)",
    "load a module": "attempt(lambda: libc.syscall(175, b'', 0, b'') == 0 or libc.syscall(313, 0, b'', 0) == 0)",
    "restart the machine": "attempt(lambda: libc.syscall(169, 0xFEE1DEAD, 672274793, 0, 0) == 0)",
    "swap": "attempt(lambda: libc.swapoff(b'/dev/vda') == 0 or libc.acct(b'/tmp/x') == 0)",
    "write into folders for everybody": "for d in ('/var/tmp', '/dev/shm', '/run/lock', '/run', '/var/crash'):\n    attempt(lambda: open(d + '/vesalius-new', 'w'))",
    "make a pipe beside the caller's files": "attempt(lambda: os.mkfifo({outside!r} + '/pipe') is None)",
    "link its file into the caller's folder": "attempt(lambda: os.link(sys.argv[0], {outside!r} + '/linked') is None)",
    "move its scratch to the caller": "open(os.environ['TMPDIR'] + '/m', 'w')\nattempt(lambda: os.rename(os.environ['TMPDIR'] + '/m', {outside!r} + '/m') is None)",
    "exchange files": "t = (os.environ['TMPDIR'] + '/x').encode()\nopen(t, 'w')\nattempt(lambda: libc.renameat2(-100, t, -100, {canary!r}.encode(), 2) == 0)",
    "write an attribute": "attempt(lambda: os.setxattr({canary!r}, 'user.x', b'y') is None)",
    "set a capability on a program": "attempt(lambda: os.setxattr(os.environ['TMPDIR'] + '/x', 'security.capability', b'\\1\\0\\0\\2' + b'\\xff' * 16) is None)",
    "make a program that becomes root": "t = os.environ['TMPDIR'] + '/s'\nopen(t, 'w')\nattempt(lambda: os.chmod(t, 0o4755) is None and os.stat(t).st_mode & 0o4000 and os.stat(t).st_uid == 0 and os.getuid() != 0)",
    "run sudo, pkexec and mount": "for c in (['sudo', '-n', 'cat'], ['pkexec', 'cat'], ['nsenter', '-t', '1', '-a', 'cat'], ['unshare', '-r', 'cat'], ['chroot', '/', 'cat']):\n    attempt(lambda: subprocess.check_output([*c, {canary!r}], stderr=-3, stdin=-3))",
    "put a library into a program of root": "attempt(lambda: b'uid=0' in subprocess.check_output(['su', '-c', 'id'], env={{'LD_PRELOAD': sys.argv[0]}}, stderr=-3, stdin=-3))",
    "read the settings of the kernel": "attempt(lambda: os.listdir('/sys') or os.listdir('/proc/sys'))",
    "read the machine's identity": "attempt(lambda: read('/etc/machine-id') or read('/etc/hostname') or read('/etc/ssh/ssh_host_rsa_key'))",
    "read what package tools remember": "attempt(lambda: read('/etc/pip.conf') or read('/root/.netrc') or read('/root/.config/pip/pip.conf'))",
    "read consents and clients": "attempt(lambda: [read(os.path.expanduser('~root/.config/vesalius/plugins.json'))])",
    "push characters into a terminal": "import fcntl\nattempt(lambda: fcntl.ioctl(0, 0x5412, b'x') == 0)",
}  # fmt: skip

ATTACKS |= MORE

#: Attacks by the numbers of other machines, each alone: the kernel may end the program for them.
OTHER_NUMBERS = {
    "call by the numbers of x32": "attempt(lambda: libc.syscall(0x40000000 | 41, 2, 1, 0) >= 0)",
    "call as a program of 32 bits": "m = ctypes.CDLL(None)\nm.mmap.restype = ctypes.c_void_p\np = m.mmap(None, 4096, 7, 0x62, -1, 0)\nctypes.memmove(p + 64, (2).to_bytes(4, 'little') + (1).to_bytes(4, 'little') + bytes(4), 12)\nc = b'\\x53\\xbb\\x01\\0\\0\\0\\xb9' + (p + 64).to_bytes(4, 'little') + b'\\xb8\\x66\\0\\0\\0\\xcd\\x80\\x5b\\xc3'\nctypes.memmove(p, c, len(c))\nattempt(lambda: ctypes.CFUNCTYPE(ctypes.c_int)(p)() >= 0)",
}  # fmt: skip


@pytest.fixture(scope="session")
def as_nobody() -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, to become a user without it")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    import socket

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary").write_text(SECRET)
    (outside / "secret.txt").write_text("a long passphrase\n")
    monkeypatch.setenv("OPENAI_API_KEY", f"sk-{SECRET}")
    victim = subprocess.Popen(["sleep", "1000"])
    server, listening = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(outside)
    listening.bind("listening")
    os.chdir(here)
    listening.listen()
    yield {
        "canary": str(outside / "canary"),
        "outside": str(outside),
        "passphrase": str(outside / "secret.txt"),
        "key": str(PACKAGE.parent / "vesalius_truth" / "key" / "task.py"),
        "key_cache": str(PACKAGE.parent / "vesalius_truth" / "key" / "__pycache__"),
        "source": str(PACKAGE.parent),
        "python": sys.executable,
        "victim": victim.pid,
        "caller": os.getpid(),
        "port": server.getsockname()[1],
        "unix_socket": str(outside / "listening"),
    }
    server.close()
    listening.close()
    untouched = victim.poll() is None and (outside / "canary").read_text() == SECRET
    victim.kill()
    victim.wait()
    assert untouched
    assert sorted(path.name for path in outside.iterdir()) == ["canary", "listening", "secret.txt"]


def ran(
    folder: Path,
    code: str,
    grants: Grants | None = None,
    *,
    layers: tuple[str, ...] = LAYERS,
    limits: CommandLimits = SMALL,
) -> tuple[str, str, Usage]:
    """What a program printed to both streams, and what it used."""
    script = folder / "program.py"
    script.write_text(code)
    arguments = [sys.executable, str(script)]
    try:
        running = Confined(arguments, grants or Grants(), layers=layers, limits=limits)
    except Failed as refusal:
        if "cannot contain" not in str(refusal):
            raise
        pytest.skip(f"this machine cannot contain commands with {', '.join(layers)}: {refusal}")
    with running:
        if "namespaces" in layers and "namespaces" not in running.ran.isolation.partition(";")[0]:
            pytest.skip("no namespaces on this machine")
        assert running.ran.contained
        running.stdin.close()
        said, errors = running.stdout.read().decode(), running.stderr.read().decode()
        return said, errors, running.usage(PATIENCE)


def attacks(places: dict[str, object]) -> str:
    """All attacks as one program, each in a process of its own where it may have one; it says which succeeded."""
    programs = {name: PRELUDE + code.format(**places) for name, code in ATTACKS.items()}
    return f"""
import os, signal, sys
signal.signal(15, signal.SIG_IGN)
launcher = os.getppid()
programs = {programs!r}
for name, code in programs.items():
    try:
        child = os.fork()
    except OSError:
        child = None
    if not child:
        try:
            print("TRIED", name, flush=True)
            exec(compile(code, name, "exec"), {{"launcher": launcher}})
        except BaseException as error:
            pass
        if child == 0:
            os._exit(0)
    else:
        os.waitpid(child, 0)
print("DONE", flush=True)
"""


def escaped(said: str) -> list[str]:
    """The attacks that succeeded, each with what it got."""
    found, name = [], "?"
    for line in said.splitlines():
        if line.startswith("TRIED "):
            name = line.removeprefix("TRIED ")
        elif line.startswith("ESCAPED"):
            found.append(f"{name}: {line}")
    return found


@pytest.mark.parametrize("layers", [LAYERS, WITHOUT_NAMESPACES], ids=["all layers", "no namespaces"])
def test_no_attack_reaches_what_the_caller_has(
    layers: tuple[str, ...], tmp_path: Path, places: dict[str, object]
) -> None:
    said, errors, _ = ran(tmp_path, attacks(places), layers=layers)
    assert said.count("TRIED") >= len(ATTACKS), (said, errors)
    assert "DONE" in said
    assert escaped(said) == []


@pytest.mark.parametrize("name", OTHER_NUMBERS)
def test_calls_by_the_numbers_of_other_machines_open_nothing(name: str, tmp_path: Path) -> None:
    said, _, usage = ran(tmp_path, PRELUDE + OTHER_NUMBERS[name], layers=WITHOUT_NAMESPACES)
    assert "ESCAPED" not in said
    assert usage.status in (0, -signal.SIGSYS, 128 + signal.SIGSYS)


#: Starts a program as a user without root and without any of its capabilities.
BECOME = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")


def _for_nobody(python: str) -> bool:
    command = [*BECOME, python, "-c", "import enum, typing; typing.Self"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("layers", [LAYERS, WITHOUT_NAMESPACES], ids=["all layers", "no namespaces"])
def test_no_attack_succeeds_for_a_user_without_root(
    layers: tuple[str, ...], tmp_path: Path, places: dict[str, object], as_nobody: None
) -> None:
    # The caller's file belongs to the user that the command runs as, who may read it.
    for path in (places["outside"], places["canary"], places["passphrase"]):
        shutil.chown(str(path), 65534, 65534)
    script = tmp_path / "attacks.py"
    script.write_text(attacks(places))
    starter = f"""
import os, sys
os.chdir('/')
sys.executable = '/usr/bin/python3'
from vesalius.sandbox.command import Confined
with Confined(['/usr/bin/env', 'python3', {str(script)!r}], layers={layers!r}) as running:
    running.stdin.close()
    print(running.ran.isolation)
    sys.stdout.write(running.stdout.read().decode())
    print(running.stderr.read().decode(), file=sys.stderr)
"""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o001 == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    # This interpreter may lie in a home that nobody cannot enter; the launcher needs nothing but a standard library.
    python = "/usr/bin/python3"
    if not _for_nobody(python):
        pytest.skip(f"user nobody cannot run a new enough {python} here")
    found = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent), "OPENAI_API_KEY": f"sk-{SECRET}"}
    done = subprocess.run([*BECOME, python, "-c", starter], env=found, capture_output=True, text=True)
    assert "DONE" in done.stdout, done.stdout + done.stderr
    assert done.stdout.startswith("contained by")
    assert escaped(done.stdout) == []


@pytest.mark.slow
def test_processes_that_are_ending_are_not_taken_for_ones_that_hide(as_nobody: None) -> None:
    """The kernel closes a process to others a moment before it is a zombie; without root that looked like hiding, and
    stopped a command that had used nothing (one look in eight where a program forks all the time).
    """
    looking = """
import os
from vesalius.sandbox.filesystem import nameless_bytes
from vesalius.sandbox.launcher import _descendants
if (forking := os.fork()) == 0:
    while True:
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
looks = [nameless_bytes(_descendants(os.getpid())[1:]) for _ in range(1000)]
os.kill(forking, 9)  # as long as it forks, the test would wait for its output to end
print(looks.count(None), flush=True)
"""
    python = "/usr/bin/python3"
    if not _for_nobody(python):
        pytest.skip(f"user nobody cannot run a new enough {python} here")
    done = subprocess.run(
        [*BECOME, python, "-c", looking], env={"PYTHONPATH": str(PACKAGE.parent)}, capture_output=True, text=True
    )
    assert done.stdout == "0\n", done.stderr


def test_the_same_program_outside_reads_all_of_it(tmp_path: Path, places: dict[str, object]) -> None:
    """The attacks are real: run as commands were run before, unconfined, they succeed."""
    wanted = (
        "read a file of the caller",
        "read the key's files",
        "import the key",
        "read the environment of the caller",
    )
    wanted += (
        "find provider keys in its environment",
        "connect to the caller's server",
        "read the passphrase by its name",
    )
    for name in wanted:
        code = PRELUDE + ATTACKS[name].format(**places)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "ESCAPED" in done.stdout, (name, done.stderr)


def test_a_command_has_the_tools_of_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "mine.sh"
    script.write_text(
        "#!/usr/bin/env bash\nread -r line\necho \"$line\" | awk '{print $1 + 1}'\n"
        "cat > $TMPDIR/a <<< 4 && sort $TMPDIR/a && exit 3\n"
    )
    script.chmod(0o755)
    with Confined([str(script)]) as running:
        running.stdin.write(b"41\n")
        assert running.stdout.read() == b"42\n4\n"
        assert running.usage(PATIENCE).status == 3


def test_usage_that_is_asked_for_too_early_can_be_asked_for_again() -> None:
    with Confined(["/bin/sh", "-c", "read line; exit 3"]) as running:
        assert running.usage(0.01) == Usage()
        running.stdin.write(b"go\n")
        assert running.usage(PATIENCE).status == 3


def test_what_is_named_is_given_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "given")
    monkeypatch.setenv("OTHER", SECRET)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "table").write_text("rows")
    code = f"import os\nprint(os.environ.get('MINE'), os.environ.get('OTHER'), open({str(folder / 'table')!r}).read())"
    for layers in (LAYERS, WITHOUT_NAMESPACES):
        said, errors, _ = ran(tmp_path, code, Grants(env=("MINE",), read=(str(folder),)), layers=layers)
        assert said.split() == ["given", "None", "rows"], errors


def test_an_allowed_path_does_not_open_the_package(tmp_path: Path) -> None:
    key = PACKAGE.parent / "vesalius_truth" / "key" / "task.py"
    repository = PACKAGE.parents[1]
    code = f"print(open({str(repository / 'README.md')!r}).read(4))\nprint(open({str(key)!r}).read())"
    for layers in (LAYERS, WITHOUT_NAMESPACES):
        said, errors, _ = ran(tmp_path, code, Grants(read=(str(repository),)), layers=layers)
        assert said.startswith("#")
        assert "Error" in errors.splitlines()[-1]
    with pytest.raises(BadInput, match="is inside vesalius"):
        Confined([sys.executable, str(key)])
    with pytest.raises(BadInput, match="is inside vesalius"):
        Confined([sys.executable, "-c", ""], Grants(read=(str(key.parent),)))


def test_other_copies_of_the_package_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a project that was allowed, in its hidden folders too, and where a system installs packages by itself."""

    def copy(*folders: str) -> str:
        place = tmp_path.joinpath(*folders)
        (place / "circuits" / "key").mkdir(parents=True)
        (place / "__init__.py").touch()
        return str(place)

    inside = [copy("project", *place) for place in ((".venv", "lib", "python3.11", "site-packages", "vesalius"),)]
    inside += [copy("project", "vendor", "deep", "down", "vesalius_functions"), copy("project", "repo/src/vesalius")]
    (tmp_path / "project" / "data" / "vesalius").mkdir(parents=True)  # of that name, and no package
    project = str(tmp_path / "project")
    closed = set(opened_for(["/bin/sh"], read=[project], network=False).closed)
    assert {path for path in closed if path.startswith(project)} == set(inside)
    with pytest.raises(BadInput, match="is inside vesalius"):
        opened_for(["/bin/sh"], read=[f"{inside[0]}/circuits"], network=False)
    system = copy("usr", "local", "lib", "python3.12", "dist-packages", "vesalius")
    monkeypatch.setattr(command_files, "_SYSTEM", (str(tmp_path / "usr"),))
    assert system in opened_for(["/bin/sh"], network=False).closed
    monkeypatch.setattr(command_files, "MOST_DIRECTORIES", 3)
    with pytest.raises(BadInput, match="holds more than 3 directories"):
        opened_for(["/bin/sh"], read=[project], network=False)


def test_grants_that_do_not_exist_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="`pass_env` NO_SUCH_VARIABLE"):
        Grants(env=("NO_SUCH_VARIABLE",))
    with pytest.raises(BadInput, match=r"`allow_read` .*nothing"):
        Grants(read=(str(tmp_path / "nothing"),))


@pytest.mark.parametrize("layers", [(), ("seccomp",), ("namespaces",), ("namespaces", "landlock")])
def test_too_few_layers_are_refused_unless_the_caller_accepts_it(layers: tuple[str, ...]) -> None:
    with pytest.raises(Failed, match="cannot contain"):
        Confined(["/bin/true"], layers=layers)
    with Confined(["/bin/echo", "ran"], Grants(unsafe=True), layers=layers) as running:
        assert running.stdout.read() == b"ran\n"
        assert not running.ran.contained
        assert "NOT contained" in running.ran.isolation


def test_a_fork_bomb_ends_at_its_limit_and_leaves_nothing(tmp_path: Path) -> None:
    bomb = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: break\ntime.sleep(600)"
    script = tmp_path / "bomb.py"
    script.write_text(bomb)
    running = Confined([sys.executable, str(script)], limits=SMALL)
    try:
        from tests.processes import until

        until(lambda: len(family(running.process.pid)) >= SMALL.processes - 5)
        members = family(running.process.pid)
        assert len(members) <= SMALL.processes + 5
    finally:
        running.close()
    for member in members:
        until_gone(member)


def test_what_stays_behind_is_killed(tmp_path: Path) -> None:
    code = """
import os, subprocess, sys
for detach in (False, True):
    subprocess.Popen(["sleep", "987"], start_new_session=detach, stdout=-3, stderr=-3, stdin=-3)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1); os.close(2)
        os.execvp("sleep", ["sleep", "987"])
    os._exit(0)
print("left", flush=True)
"""
    said, _, used = ran(tmp_path, code)
    assert (said, used.status) == ("left\n", 0)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "sleep 987" not in listed.splitlines()


@pytest.mark.parametrize(
    ("code", "stopped", "status"),
    [
        ("x = bytearray(2 << 30)", None, 1),
        ("open(__import__('os').environ['TMPDIR'] + '/big', 'wb').write(b'x' * (8 << 20))", None, 1),
    ],
    ids=["memory", "a file"],
)
def test_limits_of_one_process_hold(code: str, stopped: str | None, status: int, tmp_path: Path) -> None:
    _, errors, used = ran(tmp_path, code)
    assert used.stopped == stopped
    assert used.status in (status, -25), errors  # 25: SIGXFSZ


def test_memory_of_all_processes_together_is_limited(tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        held = b'x' * (150 << 20)
        time.sleep(600)
time.sleep(600)
"""
    _, errors, used = ran(tmp_path, code)
    assert used.stopped == "memory", errors


def test_processor_time_counts_of_children_that_nobody_waits_for() -> None:
    code = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        while time.process_time() < 0.1:
            pass
        print("burnt", flush=True)
        signal.pause()
    print("started", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as burning:
        assert burning.stdin
        assert burning.stdout
        used, seen = launcher.Used(), []
        for _ in range(3):
            burning.stdin.write(b"\n")
            burning.stdin.flush()
            assert {burning.stdout.readline(), burning.stdout.readline()} == {b"burnt\n", b"started\n"}
            launcher._measure(burning.pid, used)
            seen.append(used.cpu_seconds)
            (child,) = family(burning.pid) - {burning.pid}
            os.kill(child, signal.SIGKILL)
            until_gone(child)
        burning.stdin.close()
    assert seen[2] - seen[0] >= 0.15  # two more children of 0.1 each, in ticks of 0.01


def test_files_without_a_name_count_without_namespaces(tmp_path: Path) -> None:
    code = """
import os, time
place = os.environ["TMPDIR"] + "/x"
for number in range(12):
    file = os.open(place, os.O_CREAT | os.O_RDWR)
    os.unlink(place)
    os.write(file, b"x" * (1 << 20))
time.sleep(600)
"""
    _, errors, used = ran(tmp_path, code, layers=WITHOUT_NAMESPACES)
    assert used.stopped == "disk space", errors


def test_the_caller_kills_a_command_by_closing(tmp_path: Path) -> None:
    running = Confined(["/bin/sh", "-c", "trap '' TERM INT HUP; echo up; while :; do sleep 1; done"])
    assert running.stdout.readline() == b"up\n"
    members = family(running.process.pid)
    assert len(members) >= 2
    running.close()
    for member in members:
        until_gone(member)


def test_a_file_that_user_nobody_cannot_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where root's commands run as nobody; without namespaces they do not, and read what is root's."""
    if os.geteuid() != 0:
        pytest.skip("only root's commands run as nobody")
    script, data = tmp_path / "private.py", tmp_path / "data"
    script.write_text("print('ran')")
    script.chmod(0o600)
    data.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    ran(tmp_path, "")  # skips where there are no namespaces
    for arguments, grants in (([str(script)], Grants()), (["-c", ""], Grants(read=("~/data",)))):
        with pytest.raises(BadInput, match=r"(private\.py|data).*chmod o\+rX"):
            Confined([sys.executable, *arguments], grants)
    with Confined([sys.executable, str(script)], layers=WITHOUT_NAMESPACES) as running:
        assert running.stdout.read() == b"ran\n"


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module.sys, "platform", "darwin")
    with pytest.raises(Failed, match="use Linux"):
        Confined(["/bin/true"])


def test_what_a_command_sees_does_not_name_homes_or_the_package() -> None:
    opened = opened_for(["/bin/sh"], network=False)
    assert not any(path.startswith(("/root", "/home", "/proc", "/var", "/run")) for path in opened.trees)
    assert str(PACKAGE) in opened.closed
    assert json.dumps(opened.trees)
