"""Registered claims and their verdicts."""

from vesalius.cli.console import print_line
from vesalius_bench.claims.documents import ClaimVerdict, Registration


def print_registration(document: Registration, place: str) -> None:
    """The claim, its digest, and what the digest is good for."""
    print_document(document)
    print_line(
        f"written to {place}; publish the digest, or sign with --key, to show later that it came before the test"
    )
    print_line(f"test it: vesalius claims verify {place}")


def print_verdict(document: ClaimVerdict) -> None:
    """The result in one line, notes, and the evidence."""
    print_document(document)
    for one in document.record.evidence if document.record else ():
        print_line(repr(one))
    if document.seal is not None:
        signed = f"signed by {document.seal.signer}" if document.seal.signer else "not signed"
        print_line(f"verdict digest {document.seal.digest}, {signed}")


def print_document(document: Registration | ClaimVerdict) -> None:
    """A registration or a verdict in a few lines."""
    for line in repr(document).splitlines():
        print_line(line)
    for text in getattr(document, "notes", ()):
        print_line(f"note: {text}")
