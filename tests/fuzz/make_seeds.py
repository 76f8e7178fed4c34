#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus: for every reader a good file or two and the bad ones that once did harm.

The files are committed; neither building nor testing needs this script.
"""
import gzip
import io
import json
import os
import struct
import sys
import tarfile
import zlib

root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def seed(target, name, content):
    os.makedirs(os.path.join(root, target), exist_ok=True)
    with open(os.path.join(root, target, name), "wb") as f:
        f.write(content.encode() if isinstance(content, str) else content)


def safetensors(header, body=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


one = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
seed("safetensors", "good", safetensors(one, bytes(16)))
seed("safetensors", "two", safetensors({"__metadata__": {"a": "b"}, "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
                                        "b": {"dtype": "U8", "shape": [0, 5], "data_offsets": [8, 8]}}, bytes(8)))
seed("safetensors", "huge_header", struct.pack("<Q", 2**63))
seed("safetensors", "overflow", safetensors({"w": {"dtype": "F64", "shape": [2**61, 8], "data_offsets": [0, 0]}}))
seed("safetensors", "nought_times_huge", safetensors({"w": {"dtype": "F64", "shape": [0, 2**64 - 1], "data_offsets": [0, 0]}}))
seed("safetensors", "nought_times_large", safetensors({"w": {"dtype": "F64", "shape": [0, 2**47, 2**47], "data_offsets": [0, 0]}}))
seed("safetensors", "deep", struct.pack("<Q", 100000) + b"[" * 100000)

state = json.dumps({"format": 1, "version": "x", "position": {"step": 1, "epoch": 1, "batch": 0, "forward_units": 3.0, "rollbacks": 0},
                    "small": {"lr_scale": 1}})
MASK = 2**64 - 1


def mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def make_key(parts):
    h = 0x243F6A8885A308D3
    for p in parts:
        h = mix64((h + 0x9E3779B97F4A7C15 + mix64((p + 0xD1B54A32D192ED03) & MASK)) & MASK)
    return h


def checksum(tensors, text):  # tensors of less than 32 bytes each
    h = 1
    for name, tensor in tensors:
        for c in name.encode():
            h = mix64(h ^ c)
        h = make_key([h, (h + 1) & MASK, (h + 2) & MASK, (h + 3) & MASK, len(tensor)])
        for c in tensor:
            h = mix64(h ^ c)
    for c in text.encode():
        h = mix64(h ^ c)
    return f"{h:016x}"


seed("checkpoint", "good", safetensors({"__metadata__": {"state": state, "checksum": checksum([("w", bytes(16))], state)}, **one}, bytes(16)))
seed("checkpoint", "wrong_sum", safetensors({"__metadata__": {"state": state, "checksum": "0"}, **one}, bytes(16)))
for name, text in {"array": "[]", "text": '"x"', "types": '{"format":1,"position":{"step":"x"},"small":3}',
                   "buffer": '{"format":1,"position":{},"small":{},"buffer":7}'}.items():
    seed("checkpoint", "state_" + name, safetensors({"__metadata__": {"state": text, "checksum": "0"}, **one}, bytes(16)))
# States of a checkpoint that is whole: kinds that are not as they should be, numbers beyond, a buffer in one part and in two.
position = {"step": 1, "epoch": 1, "batch": 0, "forward_units": 3.0, "rollbacks": 0}
buffer = {"file": "buffer-00000001-r0.safetensors", "checksum": checksum([("chains", bytes(8)), ("counts", bytes(16))], "")}
states = {
    "good": {"small": {"image": [3, 8, 8], "method": {"balance": 0.5}}},
    "buffer": {"small": {}, "buffer": buffer},
    "shards": {"small": {}, "buffer": {"shards": [{**buffer, "slots": 2}, {**buffer, "slots": 2**62}]}},
    "outside": {"small": {}, "buffer": {**buffer, "file": "../../etc/passwd"}},
    "small_number": {"small": 3},
    "image_text": {"small": {"image": "x"}},
    "image_huge": {"small": {"image": [3, 2**62, 1e300]}},
    "balance_text": {"small": {"method": {"balance": "x"}}},
    "beyond": {"small": {}, "position": {**position, "step": 1e300, "epoch": 2**64}},
    "format": {"small": {}, "format": [[[]]]},
}
for name, changed in states.items():
    seed("checkpoint_state", name, json.dumps({"format": 1, "position": position, **changed}))
# Tensors that are put over those of a good checkpoint of width 1.
def weight(name, shape, bytes_each=4):
    size = bytes_each
    for n in shape:
        size *= n
    return safetensors({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}, bytes(size))


seed("run_load", "good", weight("method/encoder.conv1.weight", [1, 3, 3, 3]))
seed("run_load", "channels", weight("method/encoder.conv1.weight", [1, 40, 1, 1]))
seed("run_load", "flat", weight("method/encoder.conv1.weight", [7]))
seed("run_load", "none", weight("method/encoder.conv1.weight", [0, 0, 0, 0]))
seed("run_load", "unknown", weight("method/encoder.unknown", [2]))
seed("run_load", "state", safetensors({"__metadata__": {"state": json.dumps({"format": 1, "position": position, "small": {"image": [1, 1]}})}}))
seed("clock", "good", '{"step":1,"rollbacks":0,"seconds":2.5}\n')
seed("clock", "odd", '{"step":1,"rollbacks":0,"seconds":"x"}\n[]\n\n{"step":1e300}\n{"step":1,"rollbacks":0,"seconds":1e400}\n{"st')

def npy(descr, shape, body, version=1, order=False):
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + body


seed("npy", "good", npy("<f4", (2, 3), bytes(24)))
seed("npy", "fortran", npy("<i8", (2, 2), bytes(32), 2, True))
seed("npy", "scalar", npy("|u1", "()", b"x"))
seed("npy", "overflow", npy("<f8", (10**14, 10**14), b""))
seed("npy", "object", npy("|O", (1,), b"x"))


def stored_zip(entries, method=0):
    out, directory = b"", b""
    for name, content in entries:
        name = name.encode()
        common = struct.pack("<HHHIIIIHH", 20, 0, method, 0, zlib.crc32(content), len(content), len(content), len(name), 0)
        at = len(out)
        out += struct.pack("<I", 0x04034b50) + common + name + content
        directory += struct.pack("<IH", 0x02014b50, 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, at) + name
    return out + directory + struct.pack("<IIHHIIH", 0x06054b50, 0, len(entries), len(entries), len(directory), len(out), 0)


def number(v):
    return b"\x8a\x08" + struct.pack("<q", v)


def word(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(offset, sizes, strides):
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage") + b"ctorch\nFloatStorage\n" + word("0") + word("cpu") +
            number(16) + b"tQ" + number(offset) + numbers(sizes) + numbers(strides) + b"tR")


programs = {
    "good": b"\x80\x02}" + word("w") + tensor(1, [2, 3], [4, 1]) + b"s.",
    "plain": b"\x80\x02}(" + word("a") + b"K\x07" + word("b") + b"G" + struct.pack(">d", 1.5) + word("c") + b"]q\x01(NK\x01\x88e" + b"u.",
    "opaque": b"cos\nsystem\n(" + word("true") + b"tR.",
    "offset": tensor(2**62, [4], [1]) + b".",
    "stride_0": tensor(0, [16, 16, 16], [0, 0, 0]) + b".",
    "nested": b")" + b"\x85" * 150000 + b".",
    "itself": b"]q\x01h\x01a.",
    "memo": word("x" * 1000) + b"q\x01" + b"h\x01" * 5000 + b".",
}
for name, program in programs.items():
    seed("pickle", name, program)
    seed("torch_zip", name, stored_zip([("a/data.pkl", program), ("a/data/0", bytes(64))]))
seed("torch_zip", "packed", stored_zip([("a/data.pkl", b"N.")], 8))

# The smallest network of the released code: all its tensors are views of 1024 numbers.
def strides_of(sizes):
    out, step = [], 1
    for n in reversed(sizes):
        out.insert(0, step)
        step *= n
    return out


def state_dict(shapes):
    return b"}(" + b"".join(word(name) + tensor(0, sizes, strides_of(sizes)) for name, sizes in shapes.items()) + b"u"


def released(width=1, channels=3):
    encoder, planes = {"conv1.weight": [width, channels, 3, 3], "conv1.bias": [width]}, width
    for stage in range(1, 5):
        for block in range(2):
            name, out = f"layer{stage}.{block}.", width * 2 ** (stage - 1)
            encoder.update({name + "conv1.weight": [out, planes, 3, 3], name + "conv1.bias": [out],
                            name + "conv2.weight": [out, out, 3, 3], name + "conv2.bias": [out]})
            if out != planes:
                encoder.update({name + "shortcut.0.weight": [out, planes, 1, 1], name + "shortcut.0.bias": [out]})
            planes = out
    return encoder, {"fc1.weight": [planes, planes], "fc1.bias": [planes], "fc2.weight": [2, planes], "fc2.bias": [2]}


def released_program(encoder, head):
    return (b"\x80\x02}(" + word("enc_state_dict") + state_dict(encoder) + word("proj_state_dict") + state_dict(head) +
            word("iteration") + b"K\x07" + word("runtime") + b"G" + struct.pack(">d", 1.5) + b"u.")


encoder, head = released()
seed("import", "good", released_program(encoder, head))
seed("import", "stem", released_program({"conv1.weight": [1024, 1, 1, 1]}, head))
seed("import", "stem_alone", b"}" + word("conv1.weight") + tensor(0, [1, 3, 7, 7], [147, 49, 7, 1]) + b"s.")
seed("import", "missing", released_program({"conv1.weight": [1, 3, 3, 3]}, {}))
seed("import", "kinds", b"}(" + word("enc_state_dict") + b"]" + word("proj_state_dict") + b"K\x01u.")

images = struct.pack(">IIII", 2051, 2, 3, 4) + bytes(24)
seed("idx_images", "good", images)
seed("idx_images", "gzip", gzip.compress(images, mtime=0))
seed("idx_images", "huge", struct.pack(">IIII", 2051, 2**31, 2**15, 2**15))
seed("idx_images", "bomb", gzip.compress(struct.pack(">IIII", 2051, 1, 1, 1) + bytes(10**6), mtime=0))
seed("idx_labels", "good", struct.pack(">II", 2049, 3) + b"\x00\x09\x04")
seed("idx_labels", "large", struct.pack(">II", 2049, 3) + b"\x00\x0a\x04")
seed("cifar10", "good", b"\x03" + bytes(3072))
seed("cifar10", "label", b"\x0b" + bytes(3072))
seed("cifar100", "good", b"\x03\x07" + bytes(3072))
seed("cifar100", "short", b"\x03\x07" + bytes(300))
seed("gzip", "good", gzip.compress(b"hello", mtime=0))
seed("gzip", "two", gzip.compress(b"hello", mtime=0) + gzip.compress(b"world", mtime=0))
seed("gzip", "bomb", gzip.compress(bytes(2 << 20), mtime=0))
seed("gzip", "rubbish_behind", gzip.compress(b"hello", mtime=0) + b"rubbish")


def tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            info.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


plain = tar([("x/a", b"one", tarfile.REGTYPE), ("x/b", b"two", tarfile.REGTYPE)])
seed("tar_gz", "good", gzip.compress(plain, mtime=0))
seed("tar_gz", "outside", gzip.compress(tar([("../../a", b"one", tarfile.REGTYPE), ("/b", b"two", tarfile.REGTYPE)]), mtime=0))
seed("tar_gz", "link", gzip.compress(tar([("a", b"", tarfile.SYMTYPE), ("b", b"two", tarfile.REGTYPE)]), mtime=0))
seed("tar_gz", "cut", gzip.compress(plain[:700], mtime=0))
seed("tar_gz", "size", gzip.compress(plain[:124] + b"77777777777\0" + plain[136:], mtime=0))

seed("config", "good", "method: {name: simclr}\ntrain: {epochs: 3, seed: 5}\n")
seed("config", "released", "bs: 128\nepochs: 5\nsgld: {iter: 10, lr: 0.05}\nnet: {encoder: resnet18, use_bn: false}\nt: {flip_p: 0.5}\n")
seed("config", "itself", "method: &a {x: *a}\n")
seed("config", "bomb", "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)))
seed("config", "map_key", "{a: b}: c\n")
seed("config", "null_key", "~: 1\nnull: {2: 3}\n")
seed("config", "deep", "[" * 5000)
seed("config", "numbers", "train: {epochs: 1e400, seed: -1, batch_size: 99999999999999999999}\n")
seed("study", "good", "title: two\njudges: [knn]\nreference: ebclr\nrows: {axis: method, key: method.name, values: [simclr, ebclr]}\n"
     "fixed: {data.source: shapes, train.epochs: 3}\nclaims:\n  - {says: A beats B, kind: better, rows: ebclr, than: simclr}\n")
seed("study", "itself", "title: x\nrows: &a {axis: *a}\n")
seed("study", "wrong_kinds", "title: [x]\njudges: {a: b}\nrows: 3\nfixed: []\nclaims: {}\n")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, rows):
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


pictures = {
    "png": png(4, 4, b"".join(b"\0" + bytes([10, 20, 30, 40]) for _ in range(4))),
    "png_huge": png(100000, 100000, b"\0"),
    "pgm": b"P5\n4 4\n255\n" + bytes(range(16)),
    "ppm_text": b"P3 2 1 255 1 2 3 4 5 6\n",
    "bmp": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54 + 16, 0, 0, 54, 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0) + bytes(16),
    "jpeg_two_frames": b"\xff\xd8" + b"\xff\xc0\x00\x0b\x08\x75\x30\x75\x30\x01\x01\x11\x00" +
                       b"\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00" + b"\xff\xd9",
}
for name, content in pictures.items():
    seed("image", name, content)
    seed("image_full", name, content)
seed("labels_csv", "good", "a.pgm,one\nb.pgm,two\n")
seed("labels_csv", "quoted", '"a.pgm","o""ne"\r\nb.pgm,"x,y"\n')
seed("labels_csv", "unknown", "c.pgm,one\n")
seed("labels_csv", "open_quote", 'a.pgm,"one\n')
lines = '{"step":1,"rollbacks":0,"epoch":0.5,"loss":1.5,"seconds":2}\n'
for target in ("metrics", "metrics_log"):
    seed(target, "good", lines + '{"event":"knn","step":2,"rollbacks":0,"epoch":1,"knn":0.5}\n')
    seed(target, "text_step", '{"step":"x"}\n' + lines)
    seed(target, "odd", '{"step":1e99,"rollbacks":[]}\n[]\nnull\n{"step":-9223372036854775808}\n{"step":1.5,"epoch":1}\n')
    seed(target, "cut", lines + '{"step":2,"lo')
    seed(target, "event_first", '{"event":"rollback","step":1}\n' + lines)
    seed(target, "deep", "[" * 20000 + "\n")
seed("image_list", "good", "path,split,bytes,digest\na.jpg,train,10,0123456789abcdef0123456789abcdef\n\"b,c.png\",test,3,00\n")
seed("image_list", "odd", "path,split,bytes,digest\na.jpg,train,-1,x\n,,,\nb,rest,99999999999999999999,\n")
seed("image_list", "newline", "path,split,bytes,digest\n\"a\nb.jpg\",train,1,x\n")
seed("provenance", "good", '{"sessions": [{"version": "1", "code": "x", "threads": 2, "from_step": 0}]}')
seed("provenance", "kinds", '{"sessions": [1, [], {"version": 3, "threads": "x", "from_step": 1e99}]}')

curve = {"method": "ebclr", "data": "shapes", "judge": "knn", "protocol": "paper", "settings": "", "schedule": "", "train_images": 10,
         "test_images": 5, "points": [{"epoch": 1, "seconds": 2.5, "forward_units": 3, "accuracy": 0.4, "correct": 2, "total": 5}]}
judged = {"data": "shapes", "finished": True, "steps": 3, "rows": [
    {"subject": "trained encoder", "judge": "linear", "protocol": "honest", "accuracy": 0.5,
     "per_class": [{"class": "a"}, {"class": "b"}], "confusion": [[1, 0], [1, 0]]}]}
for target in ("curve", "judgement", "run_record"):
    seed(target, "curve", json.dumps(curve))
    seed(target, "huge", json.dumps({**curve, "train_images": 1e300, "points": [{**curve["points"][0], "correct": 1e300, "total": -1e300,
                                                                              "accuracy": 1e308}]}))
    seed(target, "kinds", json.dumps({**curve, "judge": 3, "points": [1, [], {"epoch": "x"}]}))
for target in ("judgement", "run_record"):
    seed(target, "rows", json.dumps(judged))


def index_sum(data):
    lane = [len(data) + i for i in range(4)]
    while len(data) >= 32:
        for i, w in enumerate(struct.unpack("<4Q", data[:32])):
            lane[i] = ((lane[i] ^ w) * 0x9E3779B97F4A7C15) & MASK
            lane[i] ^= lane[i] >> 29
        data = data[32:]
    h = make_key(lane)
    for c in data:
        h = mix64(h ^ c)
    return h


def index_file(changed_parts={}, checked=True, **changed):
    rows, dim, degree = 2, 2, 2
    row_checks = lambda data, width: b"".join(struct.pack("<I", index_sum(data[i:i + width]) >> 16 & 0xffffffff)
                                              for i in range(0, len(data), width))
    features, small, links, upper = struct.pack("<4f", 1, 0, 0, 1), bytes(2048), struct.pack("<6i", 1, 1, 0, 1, 0, 0), struct.pack("<2i", 0, 0)
    thumbs = b"ab"
    parts = {"features": features, "small": small, "thumbs": thumbs, "links": links, "upper": upper,
             "upper_first": struct.pack("<3q", 0, 1, 1), "feature_checks": row_checks(features, 8), "small_checks": row_checks(small, 1024),
             "thumb_checks": row_checks(thumbs, 1), "link_checks": row_checks(links, 12), "upper_checks": row_checks(upper, 8),
             "references": struct.pack("<4f", 1, 0, 0, 1), "records": bytes(112), "path_offsets": struct.pack("<3Q", 0, 5, 10),
             "paths": b"a.jpgb.jpg", "thumb_offsets": struct.pack("<3Q", 0, 1, 2), **changed_parts}
    body, sections = b"", []
    for name, data in parts.items():
        guarded = checked and name not in ("features", "small", "thumbs", "links", "upper")
        sections.append({"name": name, "offset": 64 + len(body), "bytes": len(data), "check": index_sum(data) if guarded else 0})
        body += data + bytes(-len(data) % 64)
    text = json.dumps({"fingerprint": "x", "run": "r", "method": "ebclr", "version": "1", "epoch": 1, "step": 2, "folder": "f",
                       "image_size": 32, "channels": 3, "count": rows, "dim": dim, "has_energies": True, "tau": 0.1, "reference_dim": 2,
                       "graph": {"degree": degree, "entry": 0, "top": 1}, "sections": sections, **changed}).encode()
    head = b"EBCLRIDX" + struct.pack("<IIQQQQ", 1, 56, 64 + len(body) + len(text), 64 + len(body), len(text), index_sum(text))
    return head + struct.pack("<Q", index_sum(head)) + bytes(8) + body + text


seed("index", "good", index_file())
seed("index", "unchecked", index_file(checked=False))
seed("index", "reference_width", index_file(reference_dim=2**62))
seed("index", "lists", index_file({"upper_first": struct.pack("<3q", 0, 2**62, 2**62), "upper": b"", "upper_checks": b""}, False))
seed("index", "size", index_file(count=2**31, dim=2**31))
seed("index", "two_channels", index_file(channels=2))
seed("index", "no_channels", index_file(channels=0))
seed("index", "large_images", index_file(image_size=2**40))
seed("index", "path_bytes", index_file(folder_bytes="2f70ff", run_bytes="2f72fe"))
seed("index", "no_hex", index_file(folder_bytes="2f7", run_bytes="xy"))
seed("index", "link_outside", index_file({"links": struct.pack("<6i", 1, 7, 0, 1, -1, 0)}, False))

score = {"correct": 3, "total": 4, "accuracy": 0.75, "interval": [0.3, 0.9]}
tuned = {"classes": ["a", "b"], "labels": 10, "temperature": 1.5, "held_out": score, "frozen": score}
seed("classes_json", "good", json.dumps(tuned))
seed("classes_json", "huge", json.dumps({**tuned, "labels": 1e300, "held_out": {**score, "total": 1e300}}))
seed("classes_json", "kinds", json.dumps({**tuned, "classes": {"a": 1}, "frozen": [1]}))
seed("classes_json", "count", json.dumps({**tuned, "classes": ["a"]}))

seed("watched", "good", lines + '{"event":"knn","step":2,"rollbacks":0,"epoch":1,"knn":0.5}\n2026-01-01T00:00:00Z  warning: x\n')
seed("watched", "summary", json.dumps({**judged, "knn": 0.5}))
seed("watched", "curve", json.dumps(curve))
seed("watched", "beyond", '{"step":1e300,"rollbacks":0,"epoch":1e308,"loss":-1e308,"seconds":1e308}\n'
     '{"event":"rollback","step":-1e300,"reason":"x\\u0000y"}\n{"finished":true,"steps":1e300}\n')

finding = {"finished": True, "epochs": 1, "steps": 4, "rollbacks": 0, "seconds": 1.5, "forward_units": 9, "peak_memory_bytes": 1e6,
           "settings": "frechet, 2000 samples, 100 steps", "distance": 1.5, "floor": 0.5, "ceiling": 9, "deviation": None, "samples": 50,
           "label": "x", "sessions": [{"version": "1", "threads": 2, "from_step": 0}]}
seed("findings", "good", json.dumps(finding))
seed("findings", "strangers", json.dumps({**finding, "settings": "strangers, 2000 images of each set", "deviation": 0.1}))
seed("findings", "huge", json.dumps({**finding, "epochs": 1e300, "samples": -1e300, "peak_memory_bytes": 1e308}))
seed("findings", "kinds", json.dumps({**finding, "finished": 3, "steps": "x", "label": [], "sessions": {}}))
seed("findings", "curve", json.dumps(curve))
spec = {"config": "method:\n  name: ebclr\n", "folder": "f", "title": "t", "judges": ["knn"], "sets": ["shapes"], "forward_units": 3.5,
        "judging_units": 1, "judging": [200, 10, 0, 2000, 100]}
seed("worker_spec", "good", json.dumps(spec))
seed("worker_spec", "huge", json.dumps({**spec, "judging": [1e300, 10, 0, 2000, -1e300]}))
seed("worker_spec", "kinds", json.dumps({**spec, "judges": "knn", "judging": {}}))
seed("worker_spec", "config", json.dumps({**spec, "config": "method: &a {x: *a}"}))


def cached(rows, *files):  # rows, then what the index knows of each file: path, size, time, digest, reason, row
    text = lambda t: struct.pack("<Q", len(t)) + t.encode()
    return bytes([rows]) + b"".join(text(path) + struct.pack("<QQ", 269, 0) + text("0" * 32 if row < 2**32 - 1 else "") + text(reason) +
                                    struct.pack("<Q", row) for path, reason, row in files)


seed("image_cache", "good", cached(2, ("a.pgm", "", 0), ("b.pgm", "", 1)))
seed("image_cache", "unreadable", cached(1, ("a.pgm", "", 0), ("b.pgm", "no picture", 2**32 - 1)))
seed("image_cache", "turned_round", cached(2, ("a.pgm", "", 1), ("b.pgm", "", 0)))
seed("image_cache", "outside", cached(2, ("a.pgm", "", 0), ("b.pgm", "", 7)))
seed("image_cache", "twice", cached(1, ("a.pgm", "", 0), ("b.pgm", "", 0)))
seed("image_cache", "length", b"\x02" + struct.pack("<Q", 2**63) + b"a.pgm")
seed("mirror_labels", "good", "[0, 1, 9]")
seed("mirror_labels", "odd", '[1e300, "1", [], 10, -1, 18446744073709551615]')
seed("browse_classes", "good", "path,given,predicted\na,,cat\nb,,dog\n")
seed("browse_classes", "quoted", 'path,predicted\r\n"a","x,""y\nz"""\r\nb\r\n')
seed("browse_classes", "open_quote", 'path,predicted\na,"x\n')
seed("browse_classes", "columns", "a,b\n1,2\n")
times = {"native": 1.5, "lean": 2, "released": 8}
row = {"bench": "step", "method": "ebclr", "batch_norm": False, "batch": 64, "width": 64, "size": 32, "channels": 3, "stem": "cifar",
       "chains": 0.0, "sgld_steps": 10, "threads": 2, "instructions": "avx2", "ms_per_image": times, "ms_per_image_median": times}
seed("bench_results", "good", json.dumps([row]))
seed("bench_results", "huge", json.dumps([{**row, "batch": 1e300, "threads": 2**64}]))
seed("bench_results", "zero", json.dumps([{**row, "ms_per_image": {"native": 0, "lean": 0}}]))
seed("bench_results", "kinds", json.dumps([{**row, "ms_per_image": [1], "stem": 3}, 7, []]))
seed("http_answer", "good", "https://a.b:443/c/d?e\n/f\nbytes 5-9/10")
seed("http_answer", "port", "https://a/b\nhttps://c:99999999999/d\nbytes 9-5/10")
seed("http_answer", "odd", "https://[::1]/\n//u:p@x/\nbytes 0-18446744073709551615/1")
head = "Host: localhost\r\n"
seed("http_request", "good", f"GET /?text=%41&n=5 HTTP/1.1\r\n{head}\r\n")
seed("http_request", "token", f"GET /?token=secret HTTP/1.1\r\n{head}Cookie: a=b; ebclr_0=secret\r\nAuthorization: Bearer secret\r\n\r\n")
seed("http_request", "odd", "GET /%zz%u0041?a=%&=&&b HTTP/1.1\r\nHost: [::1\r\nhost\r\n: x\r\nCookie: ;=;\r\n\r\n")
seed("http_request", "ranges", f"GET / HTTP/1.1\r\n{head}Range: bytes=0-,-1,9-1\r\nContent-Length: 99999999999999999999\r\nTransfer-Encoding: chunked\r\n\r\n")
seed("http_request", "lines", "\r\n\r\nGET\r\n")
