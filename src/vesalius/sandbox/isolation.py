"""Which layers of isolation are active, and whether they are enough."""

import sys
from dataclasses import dataclass

LAYERS = ("namespaces", "landlock", "seccomp")


@dataclass(frozen=True)
class Isolation:
    """The active layers. A program cannot undo any of them."""

    #: Separate user, PID, network, IPC, host-name and mount namespaces with a private root.
    namespaces: bool = False
    #: The Landlock version in use; 0 where it is absent.
    landlock: int = 0
    #: The list of allowed kernel calls.
    seccomp: bool = False
    #: Why a layer is absent, one line each.
    missing: tuple[str, ...] = ()

    @property
    def contained(self) -> bool:
        """Whether reads, writes, the network and processes are all restricted.

        The list of calls restricts the network and processes; files need the private root, or Landlock from the version
        that governs truncation.
        """
        return self.seccomp and (self.namespaces or self.landlock >= 3)

    def __str__(self) -> str:
        active = ["namespaces"] if self.namespaces else []
        active += [f"landlock {self.landlock}"] if self.landlock else []
        active += ["seccomp"] if self.seccomp else []
        text = "contained by " if self.contained else "NOT contained; active: "
        text += " + ".join(active) or "none"
        return text + (f"; missing: {'; '.join(self.missing)}" if self.missing else "")


def not_contained(isolation: Isolation) -> str:
    """The error message for a machine that cannot contain a program."""
    reasons = "; ".join(isolation.missing) or f"{sys.platform} has no isolation the sandbox can use"
    return (
        f"the sandbox cannot contain code on this machine ({reasons}); use Linux 6.2 or newer on x86_64 or aarch64 "
        "(5.12 where namespaces are allowed), or accept the risk with unsafe=True (`unsafe_sandbox`)"
    )
