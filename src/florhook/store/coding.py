"""How the bytes of a chunk are made smaller: what is alike is laid side by side, then zstd takes it.

A codec is a number: RAW, or ZSTD and more. Its bits from ITEM on give the size of the items whose bytes were laid side
by side, first bytes first (the exponents of floats are alike, their last bits are not); DELTA says that the content was
XORed with that of another chunk before. Both are undone after decompression.
"""

from __future__ import annotations

RAW, ZSTD, DELTA = 0, 1, 2
ITEM = 4  # bits below the size of an item
ITEMS = (1, 2, 4, 8)  # bytes; floats and integers of any kind
_SAMPLE = 1 << 18  # bytes by which the coding is chosen
_BLOCK = 1 << 20  # bytes that are XORed at once: large integers cost memory
_LEVEL = 3


def encode(content: bytes, base: bytes | None = None) -> tuple[bytes, int]:
    """The smallest form found, and its codec. `base` is like it, and as long."""
    import zstandard

    middle = max(0, len(content) - _SAMPLE) // 16 * 8
    sample = content[middle : middle + _SAMPLE]
    samples = {ZSTD: sample}
    if base is not None:
        samples[ZSTD | DELTA] = xored(sample, base[middle : middle + _SAMPLE])
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    ways = [(way, item) for way in samples for item in ITEMS]
    way, item = min(ways, key=lambda each: len(compressor.compress(shuffled(samples[each[0]], each[1]))))
    body = xored(content, base) if way & DELTA and base is not None else content
    data = compressor.compress(shuffled(body, item))
    return (data, way | item << ITEM) if len(data) < len(content) else (content, RAW)


def shuffled(data: bytes, item: int) -> bytes:
    """The first bytes of all items, then the second ones, and so on; what is no whole item stays at the end."""
    whole = len(data) // item * item
    return b"".join([*(data[at:whole:item] for at in range(item)), data[whole:]])


def unshuffled(data: bytes, item: int) -> bytes:
    """The opposite."""
    whole = len(data) // item * item
    count = whole // item
    items = bytearray(data)
    for at in range(item):
        items[at:whole:item] = data[at * count : (at + 1) * count]
    return bytes(items)


def xored(one: bytes, other: bytes) -> bytes:
    """Bit by bit; both are equally long."""
    parts = []
    for at in range(0, len(one), _BLOCK):
        piece = one[at : at + _BLOCK]
        both = int.from_bytes(piece, "little") ^ int.from_bytes(other[at : at + _BLOCK], "little")
        parts.append(both.to_bytes(len(piece), "little"))
    return b"".join(parts)
