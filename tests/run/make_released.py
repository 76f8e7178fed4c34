#!/usr/bin/env python3
"""Writes released_w8.pt: a checkpoint as the paper's released code saves it, with the golden weights of width 8.

Needs Python's torch (Debian: python3-torch). The file is committed; the test does not need Python.
"""
import collections
import math
import os
import sys

import torch

MASK = (1 << 64) - 1


def value(k, i, bound):
    x = ((k + 1) * 0x9E3779B97F4A7C15 + (i + 1) * 0xD1B54A32D192ED03) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    x ^= x >> 31
    return bound * (2 * ((x >> 40) / 2**24) - 1)


def filled(shapes, first):
    state = collections.OrderedDict()
    for k, (name, shape) in enumerate(shapes, first):
        count = math.prod(shape)
        bound = math.sqrt(3 / (count // shape[0])) if len(shape) > 1 else 0.05
        state[name] = torch.tensor([value(k, i, bound) for i in range(count)], dtype=torch.float32).view(shape)
    return state


def conv(name, out, inside, kernel):
    return [(name + ".weight", (out, inside, kernel, kernel)), (name + ".bias", (out,))]


width = 8
shapes = conv("conv1", width, 3, 3)
inside = width
for stage in range(4):
    planes = width << stage
    for block in range(2):
        prefix = f"layer{stage + 1}.{block}."
        shapes += conv(prefix + "conv1", planes, inside, 3) + conv(prefix + "conv2", planes, planes, 3)
        if block == 0 and stage > 0:
            shapes += conv(prefix + "shortcut.0", planes, inside, 1)
        inside = planes
head = [("fc1.weight", (64, 64)), ("fc1.bias", (64,)), ("fc2.weight", (16, 64)), ("fc2.bias", (16,))]
encoder = filled(shapes, 0)
checkpoint = {"iteration": 1170, "runtime": 12.5, "opt": {"state": {}, "param_groups": []},
              "enc_state_dict": encoder, "proj_state_dict": filled(head, len(encoder))}
torch.save(checkpoint, sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "released_w8.pt"))
