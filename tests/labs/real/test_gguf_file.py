"""A GGUF file is read to the bit, and a damaged or hostile one is one line of a ValueError.

The files are packed here by hand; costs about 2 s.
"""

import random
import struct
import tracemalloc

import pytest
import torch

from llmcourse_labs.real.gguf_file import MOST_VALUES, GgufFile

U32, LIST = 4, 9


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, packed):
    return text(name) + struct.pack("<I", kind) + packed


def tensor(name, sizes, kind=0, offset=0, count=None):
    """Sizes with the fastest first, as files have them."""
    number = len(sizes) if count is None else count
    packed = struct.pack(f"<I{len(sizes)}QIQ", number, *sizes, kind, offset)
    return text(name) + packed


def packed(keys=(), tensors=(), data=b"", start=b"GGUF\x03\0\0\0", counts=None):
    num_tensors, num_keys = counts or (len(tensors), len(keys))
    head = start + struct.pack("<QQ", num_tensors, num_keys) + b"".join([*keys, *tensors])
    return head + bytes(-len(head) % 32) + data


def deep(levels):
    return struct.pack("<IQ", LIST, 1) * (levels - 1) + struct.pack("<IQH", 2, 1, 7)


KEYS = [
    key("a", 0, b"\xff"),
    key("b", 1, b"\xff"),
    key("c", 5, struct.pack("<i", -7)),
    key("d", 6, struct.pack("<f", 0.1)),
    key("e", 7, b"\x01"),
    key("f", 8, text("é|>")),
    key("g", LIST, struct.pack("<IQ", 8, 2) + text("x") + text("")),
    key("h", LIST, struct.pack("<IQ3h", 3, 3, 1, -2, 3)),
    key("i", 10, struct.pack("<Q", 2**63)),
    key("j", LIST, deep(3)),
    key("k", 12, struct.pack("<d", 0.1)),
]
TENSORS = [tensor("m", [2, 3]), tensor("v", [4], kind=1, offset=32)]
DATA = torch.arange(6.0).numpy().tobytes() + bytes(8) + torch.arange(4.0).half().numpy().tobytes()
WHOLE = packed(KEYS, TENSORS, DATA)


@pytest.fixture
def opened(tmp_path):
    def opened(content):
        (tmp_path / "x.gguf").write_bytes(content)
        return GgufFile(tmp_path / "x.gguf")

    return opened


def test_values_and_tensors_are_read(opened):
    file = opened(WHOLE)
    single = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    values = [255, -1, -7, single, True, "é|>", ["x", ""], [1, -2, 3], 2**63, [[[7]]], 0.1]
    assert list(file.metadata.items()) == list(zip("abcdefghijk", values, strict=True))
    assert [(name, t.shape, t.kind) for name, t in file.tensors.items()] == [
        ("m", (3, 2), "F32"),
        ("v", (4,), "F16"),
    ]
    assert torch.equal(file.read("m"), torch.arange(6.0).view(3, 2))
    assert torch.equal(file.read("v"), torch.arange(4.0))
    file.read("m").fill_(9)  # memory of its own
    assert torch.equal(file.read("m"), torch.arange(6.0).view(3, 2))
    assert opened(packed(KEYS, start=b"GGUF\x02\0\0\0")).metadata == file.metadata


def test_data_lies_at_the_alignment_that_the_file_names(opened):
    keys = [key("general.alignment", U32, struct.pack("<I", 256))]
    content = packed(keys, [tensor("v", [4])], bytes(256))
    start = 256 * -(-len(packed(keys, [tensor("v", [4])])) // 256)
    content = content[:start] + torch.arange(4.0).numpy().tobytes()
    assert torch.equal(opened(content).read("v"), torch.arange(4.0))


HUGE = struct.pack("<Q", 2**63)
ALIGNED = [key("general.alignment", U32, struct.pack("<I", 24))]
REFUSED = {
    "nothing": (b"", "GGUF file: it has 0 bytes"),
    "magic": (b"GGML" + WHOLE[4:], "does not begin with the letters GGUF"),
    "version": (packed(start=b"GGUF\x01\0\0\0"), r"version 1, and versions \(2, 3\)"),
    "big endian": (packed(start=b"GGUF\0\0\0\x03"), "begin with their highest byte"),
    "many keys": (packed(counts=(0, 2**63)), "4 bytes are wanted at 32, and 0 are left"),
    "many tensors": (packed(counts=(2**64 - 1, 0)), "bytes are wanted at"),
    "long key": (packed([HUGE + bytes(9)]), "9223372036854775808 bytes are wanted"),
    "long text": (packed([key("a", 8, HUGE)]), "key 'a': 9223372036854775808 bytes are wanted"),
    "no text": (packed([key("a", 8, text(b"\xff\xfe"))]), "key 'a': .*can't decode"),
    "no key": (packed([key(b"\xff", 4, bytes(4))]), "can't decode"),
    "type": (packed([key("a", 13, bytes(8))]), "key 'a': there is no type 13"),
    "long list": (packed([key("a", LIST, struct.pack("<I", 0) + HUGE)]), "lists have .* values"),
    "list": (packed([key("a", LIST, struct.pack("<IQ", 10, MOST_VALUES))]), "134217728 bytes are"),
    "texts": (packed([key("a", LIST, struct.pack("<IQ", 8, MOST_VALUES))]), "bytes are wanted"),
    "deep": (packed([key("a", LIST, deep(5))]), "more than 4 deep"),
    "deeper": (packed([key("a", LIST, deep(100_000))]), "more than 4 deep"),
    "key twice": (packed([KEYS[0], KEYS[0]]), "the key 'a' comes twice"),
    "long name": (packed([key("\n" * 500, 0, b"x")] * 2), r"the key '[\\n]+\.\.\. comes twice"),
    "tensor twice": (packed([], [TENSORS[0]] * 2, DATA), "the tensor 'm' comes twice"),
    "no sizes": (packed([], [tensor("m", [])], DATA), "0 dimensions, not 1 to 4"),
    "sizes": (packed([], [tensor("m", [1] * 5)], DATA), "5 dimensions, not 1 to 4"),
    "many sizes": (packed([], [tensor("m", [1], count=2**32 - 1)], DATA), "4294967295 dimensions"),
    "size 0": (packed([], [tensor("m", [2, 0])], DATA), r"the shape \(0, 2\): sizes are 1"),
    "row": (packed([], [tensor("m", [16, 2], kind=8)], bytes(99)), "rows a multiple of 32"),
    "kind": (packed([], [tensor("m", [256], kind=13)], DATA), "'m' is of the kind Q5_K, and only"),
    "new kind": (packed([], [tensor("m", [256], kind=99)], DATA), "of the kind 99, and only F32"),
    "product": (packed([], [tensor("m", [2**32, 2**32])], DATA), "ends at .*: is it cut off"),
    "size": (packed([], [tensor("m", [2**64 - 1] * 4)], DATA), "ends at .*: is it cut off"),
    "cut": (WHOLE[:-1], "the data of 'v' ends at .*, and the file at .*: is it cut off"),
    "offset": (packed([], [tensor("m", [2], offset=2**63)], DATA), "ends at .*is it cut off"),
    "odd offset": (packed([], [tensor("m", [2], offset=8)], DATA), "not at a multiple of 32"),
    "overlap": (packed([], [tensor("m", [9]), tensor("n", [2], offset=32)], bytes(64)), "overlaps"),
    "alignment": (packed(ALIGNED, TENSORS, DATA), "must be a power of two, 8 or more, got 24"),
    "alignment 4": (packed([key("general.alignment", U32, b"\4\0\0\0")]), "8 or more, got 4"),
    "no alignment": (packed([key("general.alignment", 8, text("32"))]), "8 or more, got '32'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_file_is_refused_in_one_line(case, opened):
    content, message = REFUSED[case]
    with pytest.raises(ValueError, match=rf"x\.gguf is no .*{message}") as caught:
        opened(content)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no GGUF file"):
        GgufFile(tmp_path)


@pytest.mark.parametrize("end", range(0, len(WHOLE), 11))
def test_a_file_that_is_cut_off_anywhere_is_refused(end, opened):
    with pytest.raises(ValueError, match=r"x\.gguf is no "):
        opened(WHOLE[:end])


def test_whatever_bytes_are_changed_it_is_a_whole_file_or_one_line(opened, nth_seed, soaking):
    draw, num_whole, said = random.Random(nth_seed), 0, set()
    header = len(packed(KEYS, TENSORS))
    tracemalloc.start()
    for _ in range(3000 if soaking else 250):
        content = bytearray(WHOLE)
        for _ in range(draw.choice([1, 1, 2, 5])):
            new = draw.choice([draw.randbytes(1), b"\0", b"\xff", HUGE, struct.pack("<Q", 99)])
            place = draw.randrange(header)
            content[place : place + len(new)] = new
        try:
            file = opened(bytes(content))
            num_whole += 1
            assert all(file.read(name).shape == t.shape for name, t in file.tensors.items())
        except ValueError as error:
            said.add(str(error).split("x.gguf is no ")[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_whole > 20
    assert len(said) > 20
    assert not any("\n" in line for line in said)
    assert peak < 2**20
