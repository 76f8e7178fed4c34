"""The Python module against the program: the same run, the same numbers."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: no python3-numpy")
    sys.exit(77)
import ebclr

try:
    import torch
except ImportError:
    torch = None

SMALL = {"data.source": "shapes", "data.limit": 48, "train.batch_size": 8, "train.epochs": 1, "encoder.width": 8,
         "head.out": 16, "log.every": 1, "buffer.size": 200, "sampler.steps": 3, "log.samples_every": 0}


class Module(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        os.chdir(cls.work.name)
        os.environ["EBCLR_DATA"] = cls.work.name
        cls.steps = []
        cls.run_folder = ebclr.train(SMALL, out="run", on_step=cls.steps.append)
        cls.enc = ebclr.load("run")
        rng = np.random.default_rng(0)
        cls.images = rng.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        cls.work.cleanup()

    def test_train_reports_steps(self):
        self.assertEqual(self.run_folder, "run")
        self.assertEqual([s["step"] for s in self.steps], list(range(1, 7)))
        self.assertTrue(all(np.isfinite(s["loss"]) for s in self.steps))
        self.assertTrue(pathlib.Path("run/summary.json").exists())

    def test_embed(self):
        f = self.enc.embed(self.images)
        self.assertEqual((f.shape, f.dtype), ((20, self.enc.dim), np.float32))
        np.testing.assert_allclose(self.enc.embed(self.images, batch=7), f, rtol=1e-4, atol=1e-5)
        floats = (self.images.transpose(0, 3, 1, 2).astype(np.float32) * (2 / 255) - 1)
        np.testing.assert_allclose(self.enc.embed(floats), f, rtol=1e-3, atol=1e-4)
        self.assertEqual(self.enc.embed(self.images, part="projection").shape, (20, 16))
        self.assertEqual(self.enc.embed(self.images[0]).shape, (1, self.enc.dim))
        np.testing.assert_allclose(self.enc.embed(self.images[::2]), f[::2], rtol=1e-4, atol=1e-5)

    def test_arrays_are_not_copied(self):
        floats = np.zeros((2, 3, 32, 32), np.float32)
        self.assertEqual(ebclr._address(floats, 3), floats.ctypes.data)
        self.assertEqual(ebclr._address(self.images, 3), self.images.ctypes.data)

    @unittest.skipIf(torch is None, "no python3-torch")
    def test_tensors_are_not_copied(self):
        t = torch.rand(4, 3, 32, 32) * 2 - 1
        self.assertEqual(ebclr._address(t, 3), t.data_ptr())
        np.testing.assert_array_equal(self.enc.embed(t), self.enc.embed(t.numpy()))
        u = torch.from_numpy(self.images)
        self.assertEqual(ebclr._address(u, 3), u.data_ptr())
        np.testing.assert_array_equal(self.enc.embed(u), self.enc.embed(self.images))
        t.requires_grad_()
        self.assertEqual(self.enc.embed(t).shape, (4, self.enc.dim))

    def test_energy_and_sample(self):
        e = self.enc.energy(self.images)
        self.assertEqual(e.shape, (20,))
        self.assertTrue(np.isfinite(e).all())
        x, ex = self.enc.sample(count=3, steps=4, seed=1)
        self.assertEqual((x.shape, ex.shape), ((3, 3, 32, 32), (3,)))
        y, _ = self.enc.sample(count=3, steps=4, seed=1)
        np.testing.assert_array_equal(x, y)

    def test_same_as_the_program(self):
        program = os.environ["EBCLR_PROGRAM"]
        subprocess.run([program, "embed", "run", "--out", "emb.npy"], check=True, stdout=subprocess.DEVNULL)
        theirs = np.load("emb.npy")
        self.assertEqual(theirs.shape[1], self.enc.dim)
        os.makedirs("photos", exist_ok=True)
        for i in range(12):
            subprocess.run([program, "data", "show", "shapes", "--count", "1", "--seed", str(i), "--out",
                            f"photos/{i}.png"], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(ebclr.index("run", "photos", "photos.idx"), 12)
        hits = ebclr.search("photos.idx", "photos/3.png", top=4)
        self.assertEqual(hits[0][0], "3.png")
        self.assertAlmostEqual(hits[0][1], 1.0, places=4)
        out = subprocess.run([program, "search", "photos.idx", "photos/3.png", "--top", "4"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual([line.split()[1] for line in out.splitlines()], [h[0] for h in hits])
        f = self.enc.embed(["photos/3.png", pathlib.Path("photos/4.png")])
        self.assertEqual(f.shape, (2, self.enc.dim))

    def test_messages(self):
        for call, text in [(lambda: ebclr.load("nowhere"), "no such run folder"),
                           (lambda: self.enc.embed(np.zeros((2, 32, 32, 4), np.uint8)), "reads [N, H, W, 3]"),
                           (lambda: self.enc.embed(np.zeros((2, 8, 8, 3), np.uint8)), "too small"),
                           (lambda: self.enc.embed(np.zeros((2, 3, 32, 32))), "uint8"),
                           (lambda: self.enc.embed([]), "empty list"),
                           (lambda: self.enc.embed(["gone.jpg"]), "gone.jpg"),
                           (lambda: self.enc.embed(self.images, part="soul"), "features or projection"),
                           (lambda: ebclr.train({"method.lamda": 1}, out="x"), "method.lambda"),
                           (lambda: ebclr.search("none.idx", "a.png"), "no such index")]:
            with self.assertRaises(ebclr.UsageError) as caught:
                call()
            self.assertIn(text, str(caught.exception))
            self.assertIsInstance(caught.exception, ValueError)
            self.assertIsInstance(caught.exception, ebclr.Error)

    def test_an_exception_in_on_step_stops_at_a_checkpoint(self):
        class Enough(Exception):
            pass

        def on_step(s):
            if s["step"] == 3:
                raise Enough("three will do")

        with self.assertRaisesRegex(Enough, "three will do"):
            ebclr.train(SMALL, out="stopped", on_step=on_step)
        steps = []
        ebclr.train(resume="stopped", on_step=steps.append)
        self.assertEqual(steps[0]["step"], 4)
        self.assertEqual(steps[-1]["step"], 6)

    def test_the_gil_is_free_and_ctrl_c_works(self):
        many = np.zeros((60000, 32, 32, 3), np.uint8)
        ticks = []

        def tick():
            while len(ticks) < 3:
                time.sleep(0.01)
                ticks.append(1)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=tick)
        begin = time.time()
        with self.assertRaises(KeyboardInterrupt):
            thread.start()
            self.enc.embed(many, batch=32)
        thread.join()
        self.assertEqual(len(ticks), 3)
        self.assertLess(time.time() - begin, 60)


if __name__ == "__main__":
    unittest.main()
