"""Reads TensorBoard's event files and safetensors, from the documented formats alone.

An event file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h): the length as
uint64, its masked CRC-32C, the bytes and their masked CRC-32C. The bytes are a message Event
(core/util/event.proto, core/framework/summary.proto) in the encoding of protocol buffers.
"""

import json
import struct


def crc32c(data):
    """CRC-32C of bytes, bit by bit: the polynomial 0x1EDC6F41, reflected (RFC 3720)."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    """Returns the bytes of each record. ValueError if a record is damaged or not whole."""
    place, found = 0, []
    while place < len(data):
        head = data[place:place + 12]
        if len(head) < 12 or masked(head[:8]) != struct.unpack("<I", head[8:])[0]:
            raise ValueError(f"record {len(found)}: a wrong length")
        (length,) = struct.unpack("<Q", head[:8])
        body = data[place + 12:place + 12 + length]
        tail = data[place + 12 + length:place + 16 + length]
        if len(tail) < 4 or masked(body) != struct.unpack("<I", tail)[0]:
            raise ValueError(f"record {len(found)}: wrong bytes")
        found.append(body)
        place += 16 + length
    return found


def varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7f) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def fields(data):
    """Returns the fields of a message as (number, value)."""
    place, found = 0, []
    while place < len(data):
        key, place = varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = varint(data, place)
        elif wire == 1:
            value, place = struct.unpack_from("<d", data, place)[0], place + 8
        elif wire == 2:
            length, place = varint(data, place)
            value, place = bytes(data[place:place + length]), place + length
        elif wire == 5:
            value, place = struct.unpack_from("<f", data, place)[0], place + 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if place > len(data):
            raise ValueError("a field beyond its message")
        found.append((number, value))
    return found


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


class Histogram:
    def __init__(self, data):
        values = dict(fields(data))
        self.min, self.max, self.num, self.sum, self.squares = (values.get(n, 0.0)
                                                                for n in range(1, 6))
        self.limits, self.counts = doubles(values[6]), doubles(values[7])


class Events:
    """The events of a file: numbers and histograms as {tag: [(step, value)]}."""

    def __init__(self, path):
        self.numbers, self.histograms, self.times = {}, {}, []
        self.version = None
        for record in records(path.read_bytes()):
            event = dict(fields(record))
            self.times.append(event[1])
            if 3 in event:
                self.version = event[3].decode()
            for number, value in fields(event.get(5, b"")):
                if number != 1:
                    raise ValueError(f"unknown field {number} of a summary")
                self.add(event.get(2, 0), dict(fields(value)))

    def add(self, step, value):
        tag = value[1].decode()
        if 2 in value:
            self.numbers.setdefault(tag, []).append((step, value[2]))
        if 5 in value:
            self.histograms.setdefault(tag, []).append((step, Histogram(value[5])))


def read_safetensors(path):
    """Returns {name: list of float} of a file of float32 and float16 tensors."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    codes = {"F32": "f", "F16": "e", "I32": "i", "U32": "I"}
    body = data[8 + length:]
    tensors = {}
    for name, t in header.items():
        part = body[slice(*t["data_offsets"])]
        code = "<" + codes[t["dtype"]]
        tensors[name] = [v for v, in struct.iter_unpack(code, part)]
    return tensors
