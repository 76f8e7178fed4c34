# Runs an exported file with Python's torch: judge_torch.py FORMAT FILE INPUT.npy OUTPUT.npy
import collections
import sys

import numpy as np
import torch

form, file, source, target = sys.argv[1:5]
images = torch.from_numpy(np.load(source))
if form == "torchscript":
    extra = {"ebclr.json": ""}
    model = torch.jit.load(file, _extra_files=extra)
    assert b"configuration" in extra["ebclr.json"], "no metadata"
    model.eval()
    with torch.no_grad():
        out = model(images)
else:
    kwargs = {"weights_only": True} if torch.__version__ >= "1.13" else {}
    state = torch.load(file, map_location="cpu", **kwargs)
    assert isinstance(state, collections.OrderedDict), type(state)

    # The paper's network again, in plain functions, from the names in the file alone.
    def conv(x, name, stride, padding):
        x = torch.nn.functional.conv2d(x, state[name + ".weight"], state.get(name + ".bias"), stride, padding)
        bn = name.replace("conv", "bn") if "downsample" not in name else name[:-1] + "1"
        if bn + ".running_mean" in state:
            x = torch.nn.functional.batch_norm(x, state[bn + ".running_mean"], state[bn + ".running_var"],
                                               state[bn + ".weight"], state[bn + ".bias"])
        return x

    slope = float(sys.argv[5])
    act = lambda x: torch.nn.functional.leaky_relu(x, slope)
    with torch.no_grad():
        x = act(conv(images, "conv1", 1, 1))
        for s in range(1, 5):
            b = 0
            while f"layer{s}.{b}.conv1.weight" in state:
                p, stride = f"layer{s}.{b}", 2 if s > 1 and b == 0 else 1
                h = conv(act(conv(x, p + ".conv1", stride, 1)), p + ".conv2", 1, 1)
                if p + ".downsample.0.weight" in state:
                    x = conv(x, p + ".downsample.0", stride, 0)
                x = act(h + x)
                b += 1
        out = x.mean((2, 3))
np.save(target, out.numpy())
