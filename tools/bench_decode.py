#!/usr/bin/env python3
"""Pictures per second (of processor time) that Pillow and OpenCV decode and resize, one at a time on one thread, as JSON.

The counterpart of `ebclr bench decode`, which gives the list of files; either library may be absent
(Debian: python3-pil, python3-opencv).
Usage: bench_decode.py LIST.json SIZE LARGER
"""
import io
import json
import sys
import time


def speed(decode, files):
    decode(files[0])
    start = time.process_time()
    for content in files:
        decode(content)
    return len(files) / (time.process_time() - start)


def main():
    with open(sys.argv[1], encoding="utf-8") as names:
        files = [open(name, "rb").read() for name in json.load(names)]
    sizes = [int(a) for a in sys.argv[2:4]]
    result = {}
    try:
        import PIL
        from PIL import Image, ImageOps

        def pillow(content, draft=False):
            picture = Image.open(io.BytesIO(content))
            if draft:
                picture.draft("RGB", (max(sizes), max(sizes)))
            picture = ImageOps.exif_transpose(picture).convert("RGB")
            for side in sizes:
                ImageOps.fit(picture, (side, side), Image.BILINEAR)

        result["Pillow " + PIL.__version__] = speed(pillow, files)
        result["Pillow, JPEGs by draft()"] = speed(lambda c: pillow(c, True), files)
    except ImportError:
        result["Pillow"] = 0  # not there
    try:
        import cv2
        import numpy

        cv2.setNumThreads(1)

        def opencv(content):
            picture = cv2.imdecode(numpy.frombuffer(content, numpy.uint8), cv2.IMREAD_COLOR)
            side = min(picture.shape[:2])
            y, x = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
            square = picture[y:y + side, x:x + side]
            for target in sizes:
                cv2.resize(square, (target, target), interpolation=cv2.INTER_AREA)

        result["OpenCV " + cv2.__version__] = speed(opencv, files)
    except ImportError:
        result["OpenCV"] = 0
    print(json.dumps(result))


if __name__ == "__main__":
    main()
