"""One column of texts from a Parquet file, without a Parquet library.

The GloVe package stores its 400,000 words that way, and nothing else here needs Parquet. A file is a chain of pages: a
header in Thrift's compact protocol, then a block that may be packed with Snappy. A dictionary page lists texts; a data
page holds numbers of that list, or texts themselves. The pages are walked from the start of the file; no footer is
needed, since there is one column without nulls.
"""

from pathlib import Path
from typing import Any

from vesalius.errors import BadInput

MAGIC = b"PAR1"
#: Page types and encodings by their numbers in the format.
DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8
#: Fields of a page header.
TYPE, UNPACKED_SIZE, PACKED_SIZE, DATA_HEADER, DICTIONARY_HEADER = 1, 2, 3, 5, 7
VALUES, ENCODING = 1, 2


def read_texts(path: Path) -> list[str]:
    """The texts of a Parquet file that holds one column of texts without nulls."""
    content = path.read_bytes()
    if len(content) < 12 or content[:4] != MAGIC or content[-4:] != MAGIC:
        raise BadInput(f"{path}: not a Parquet file; reinstall the package it belongs to")
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    place, listed, found = 4, [], []
    while place < footer:
        header, place = _struct(content, place)
        block = unpack_snappy(content[place : place + header[PACKED_SIZE]])
        place += header[PACKED_SIZE]
        if len(block) != header[UNPACKED_SIZE]:
            raise BadInput(f"{path}: a page is damaged; reinstall the package it belongs to")
        if header[TYPE] == DICTIONARY_PAGE:
            listed = _plain(block, header[DICTIONARY_HEADER][VALUES])
        elif header[TYPE] == DATA_PAGE:
            found += _data_page(block, header[DATA_HEADER], listed)
        else:
            raise BadInput(f"{path}: page type {header[TYPE]} is not read here; install the pinned version")
    return found


def unpack_snappy(packed: bytes) -> bytes:
    """Undo Snappy: the length, then pieces that are either spelled out or copied from what is already there."""
    size, place = _varint(packed, 0)
    out = bytearray()
    end = len(packed)
    while place < end:
        tag = packed[place]
        kind, place = tag & 3, place + 1
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                wide = length - 59
                length = int.from_bytes(packed[place : place + wide], "little")
                place += wide
            length += 1
            out += packed[place : place + length]
            place += length
            continue
        if kind == 1:
            length, back = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | packed[place]
            place += 1
        else:
            wide = 2 if kind == 2 else 4
            length, back = (tag >> 2) + 1, int.from_bytes(packed[place : place + wide], "little")
            place += wide
        start = len(out) - back
        piece = out[start : start + length]
        # A copy may reach into what it is itself writing: then the piece repeats.
        out += piece if len(piece) == length else (piece * (length // len(piece) + 1))[:length]
    if len(out) != size:
        raise BadInput("a Snappy block is damaged; reinstall the package it belongs to")
    return bytes(out)


def _data_page(block: bytes, header: dict[int, Any], listed: list[str]) -> list[str]:
    # Levels that say which values are null come first, behind their length in four bytes.
    start = 4 + int.from_bytes(block[:4], "little")
    if header[ENCODING] == PLAIN:
        return _plain(block[start:], header[VALUES])
    if header[ENCODING] not in (PLAIN_DICTIONARY, RLE_DICTIONARY):
        raise BadInput(f"Parquet encoding {header[ENCODING]} is not read here; install the pinned version")
    numbers = _hybrid(block[start + 1 :], block[start], header[VALUES])
    return [listed[number] for number in numbers]


def _plain(block: bytes, count: int) -> list[str]:
    """Texts spelled out, each behind its length in four bytes."""
    texts, place = [], 0
    for _ in range(count):
        length = int.from_bytes(block[place : place + 4], "little")
        place += 4 + length
        texts.append(block[place - length : place].decode("utf-8"))
    return texts


def _hybrid(block: bytes, width: int, count: int) -> list[int]:
    """Numbers of `width` bits, in runs: one number repeated, or groups of eight packed together."""
    numbers: list[int] = []
    place, mask = 0, (1 << width) - 1
    while len(numbers) < count:
        head, place = _varint(block, place)
        if head & 1:
            size = (head >> 1) * width
            packed = int.from_bytes(block[place : place + size], "little")
            for _ in range((head >> 1) * 8):
                numbers.append(packed & mask)
                packed >>= width
        else:
            size = (width + 7) // 8
            numbers += [int.from_bytes(block[place : place + size], "little")] * (head >> 1)
        place += size
    return numbers[:count]


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _struct(content: bytes, place: int) -> tuple[dict[int, Any], int]:
    """A Thrift structure by its field numbers; of its fields, only the kinds a page header has."""
    fields: dict[int, Any] = {}
    number = 0
    while content[place]:
        head, place = content[place], place + 1
        if head >> 4:
            number += head >> 4
        else:
            raw, place = _varint(content, place)
            number = raw >> 1 ^ -(raw & 1)
        kind = head & 15
        if kind in (1, 2):  # true, false
            fields[number] = kind == 1
        elif kind in (4, 5, 6):  # integers
            raw, place = _varint(content, place)
            fields[number] = raw >> 1 ^ -(raw & 1)
        elif kind == 8:  # bytes
            length, place = _varint(content, place)
            fields[number], place = content[place : place + length], place + length
        elif kind == 12:
            fields[number], place = _struct(content, place)
        else:
            raise BadInput(f"a Parquet header has a field of kind {kind}, which is not read here")
    return fields, place + 1
