#!/usr/bin/env python3
"""Views per second (of processor time) of torchvision's transforms, one image at a time on one thread, as JSON.

The counterpart of `ebclr bench augment`; needs Python's torchvision (Debian: python3-torchvision).
Usage: bench_torchvision.py [SECONDS]
"""
import json
import sys
import time

import torch
import torchvision
from torchvision import transforms as t


def speed(transform, channels, size, seconds):
    images = torch.randint(0, 256, (64, channels, size, size), dtype=torch.uint8)
    made, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        view = transform(images[made % 64])
        view = 2 * (view + 0.03 * torch.randn_like(view)) - 1
        made += 1
    return made / (time.process_time() - start)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    torch.set_num_threads(1)
    to_float = t.ConvertImageDtype(torch.float32)
    colour = t.Compose([
        to_float,
        t.RandomResizedCrop(32, scale=(0.08, 1.0)),
        t.RandomHorizontalFlip(),
        t.RandomApply([t.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        t.RandomGrayscale(0.2),
    ])
    grey = t.Compose([to_float, t.RandomResizedCrop(28, scale=(0.08, 1.0))])
    print(json.dumps({
        "torchvision": torchvision.__version__,
        "colour32": speed(colour, 3, 32, seconds),
        "gray28": speed(grey, 1, 28, seconds),
    }))


if __name__ == "__main__":
    main()
