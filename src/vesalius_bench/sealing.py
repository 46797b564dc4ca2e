"""Digests, signatures and sealed texts.

A *seal* closes a JSON document: the SHA-256 digest of its canonical form and, with a key, an Ed25519 signature. A
digest alone shows only that the document is as its author left it, or that it was computed again; a digest that
was published, or a signature by a known key, shows more. A *sealed text* can be read only with a passphrase: scrypt
makes the key of it, AES-256-GCM encrypts and authenticates.

Signatures and sealed texts need the package `cryptography` (extra `sealing`); digests need nothing.
"""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, quoted

SEAL = "seal"
#: Cost of the key of a passphrase, as OWASP advises for scrypt: 128 MiB of memory, a fraction of a second.
SCRYPT = {"n": 2**17, "r": 8, "p": 1}
#: How public keys begin that are points of small order, for which signatures can be made without any private key.
_WEAK = (
    "01" + "00" * 30,
    "ec" + "ff" * 30,
    "00" * 31,
    "ed" + "ff" * 30,
    "ee" + "ff" * 30,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03",
)
_METHOD = "scrypt+aes-256-gcm"
_MAX_SCRYPT = 2**20
_LEAST_PASSPHRASE = 8


def canonical(data: Any) -> bytes:
    """A value as canonical JSON: sorted names, no spaces, UTF-8; numbers as Python writes them."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def digest(data: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(data)).hexdigest()


def with_seal(data: Mapping[str, Any], key: Path | str | None = None) -> dict[str, Any]:
    """The document with its seal: who signed it (None: nobody), the signature, and the digest over all of it."""
    body = {name: value for name, value in data.items() if name != SEAL}
    signer = signature = None
    if key is not None:
        private = _private_key(Path(key))
        signer = _public_hex(private.public_key())
        signature = private.sign(canonical([body, signer])).hex()
    signed = {"signer": signer, "signature": signature}
    return {**body, SEAL: {**signed, "digest": digest({**body, SEAL: signed})}}


def seal_faults(
    data: Mapping[str, Any], *, published: str | None = None, signer: str | None = None
) -> dict[str, str | None]:
    """What holding a document against its seal shows: the name of each check with what is wrong, None if nothing is.

    `published` is the digest that was published, `signer` the public key that its author is known by.
    """
    seal = data.get(SEAL)
    seal = seal if isinstance(seal, Mapping) else {}
    body = {name: value for name, value in data.items() if name != SEAL}
    signed = {name: value for name, value in seal.items() if name != "digest"}
    found = digest({**body, SEAL: signed})
    faults: dict[str, str | None] = {"digest": None}
    if seal.get("digest") is None:
        faults["digest"] = "there is none: the seal was taken off, or never made"
    elif seal["digest"] != found:
        faults["digest"] = "the fields do not give the digest of the seal: one of them was altered"
    if published is not None:
        faults["published digest"] = None if published.strip().lower() == found else "another digest was published"
    if missing := _signature_missing(seal, signer):
        return {**faults, "seal": missing}
    if signer is not None:
        same = seal.get("signer") == signer.strip().lower()
        faults["signer"] = None if same else "it is not signed by the key that was named"
    if seal.get("signature") is not None or seal.get("signer") is not None or signer is not None:
        faults["signature"] = _signature_fault(body, seal)
    return faults


def is_stripped(data: Mapping[str, Any], *, signer: str | None = None) -> bool:
    """Whether a seal, or a signature that should be there, is missing, and not only wrong."""
    seal = data.get(SEAL)
    if not isinstance(seal, Mapping) or seal.get("digest") is None:
        return True
    return _signature_missing(seal, signer) is not None


def _signature_missing(seal: Mapping[str, Any], signer: str | None) -> str | None:
    signed = [seal.get(name) is not None for name in ("signer", "signature")]
    if any(signed) and not all(signed):
        return "half of the signature is missing"
    if signer is not None and not any(signed):
        return f"there is no signature, and one of {quoted(signer.strip()[:16], 40)} was asked for"
    return None


def _signature_fault(body: Mapping[str, Any], seal: Mapping[str, Any]) -> str | None:
    cryptography_needed()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = bytes.fromhex(seal["signer"])
        if raw[:31].hex() in _WEAK:
            return "the key is one that anybody can sign for; ask for another"
        public = Ed25519PublicKey.from_public_bytes(raw)
        public.verify(bytes.fromhex(seal["signature"]), canonical([body, seal["signer"]]))
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return "the signature is not the signer's over these fields"
    return None


def signing_key(path: Path | str) -> str:
    """Make an Ed25519 key, write the private half as PEM, readable by its owner alone, and return the public half."""
    cryptography_needed()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path, private = Path(path), Ed25519PrivateKey.generate()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInput(f"{path}: exists already; a key is never overwritten, choose another name") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from None
    with os.fdopen(handle, "wb") as file:
        file.write(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return _public_hex(private.public_key())


def _private_key(path: Path) -> Any:
    cryptography_needed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"{path}: is no Ed25519 key in PEM; make one with `vesalius claims key FILE`")
    return key


def _public_hex(public: Any) -> str:
    return public.public_bytes_raw().hex()


def seal_text(text: str, passphrase: str, *, cost: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A text that can be read only with the passphrase, as JSON data. `cost` are the parameters of scrypt."""
    cryptography_needed()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(passphrase) < _LEAST_PASSPHRASE:
        raise BadInput(f"the passphrase has {len(passphrase)} characters; give at least {_LEAST_PASSPHRASE}")
    salt, nonce = os.urandom(16), os.urandom(12)
    head = {"method": _METHOD, "scrypt": dict(cost or SCRYPT), "salt": salt.hex(), "nonce": nonce.hex()}
    cipher = AESGCM(_passphrase_key(passphrase, head))
    return {**head, "text": base64.b64encode(cipher.encrypt(nonce, text.encode(), canonical(head))).decode()}


def open_text(sealed: Mapping[str, Any], passphrase: str, *, source: object = "the sealed text") -> str:
    """The text again; refused with a wrong passphrase, or where anything was altered."""
    cryptography_needed()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    head = {name: value for name, value in sealed.items() if name != "text"}
    if head.get("method") != _METHOD:
        raise BadInput(f"{source}: sealed by {quoted(head.get('method'), 40)}; this version opens {_METHOD}")
    try:
        cipher = AESGCM(_passphrase_key(passphrase, head))
        return cipher.decrypt(bytes.fromhex(head["nonce"]), base64.b64decode(sealed["text"]), canonical(head)).decode()
    except InvalidTag:
        raise BadInput(f"{source}: does not open with this passphrase; give the one it was sealed with") from None
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{source}: is damaged; take it from its source again") from None


def _passphrase_key(passphrase: str, head: Mapping[str, Any]) -> bytes:
    cost = {name: int(head["scrypt"][name]) for name in SCRYPT}
    if not (2 <= cost["n"] <= _MAX_SCRYPT and 1 <= cost["r"] <= 16 and 1 <= cost["p"] <= 16):
        raise ValueError("the cost of scrypt is out of range")
    memory = 256 * cost["n"] * cost["r"]
    return hashlib.scrypt(passphrase.encode(), salt=bytes.fromhex(head["salt"]), dklen=32, maxmem=memory, **cost)


def cryptography_needed() -> None:
    """Refuse in one line where the package that signs and encrypts is missing."""
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise BadInput(
            "signatures and sealed keys need the package cryptography, which is not installed; "
            "run: pip install 'vesalius[sealing]'"
        ) from None
