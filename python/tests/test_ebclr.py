"""The Python module against the program: the same run, the same numbers."""
import ctypes
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings

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


def write_picture(path, pixels):
    pathlib.Path(path).write_bytes(b"P6 32 32 255\n" + pixels.tobytes())


def interrupt_after(seconds):
    def send():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


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

    def test_networks_and_images_are_read_once(self):
        os.makedirs("own")
        for i, x in enumerate(self.images):
            pathlib.Path(f"own/{i}.ppm").write_bytes(b"P6 32 32 255\n" + x.tobytes())
        folder = os.path.abspath("own")
        ebclr.train({**SMALL, "data.source": folder, "train.batch_size": 4, "optimizer.lr": 1e-6}, out="of_folder")
        enc = ebclr.load("of_folder")
        shutil.rmtree("of_folder/checkpoints")  # a training that goes on replaces its checkpoints
        e = enc.energy(self.images, references=3)
        os.rename("own", "moved")
        x, _ = enc.sample(count=2, steps=2, references=5)
        self.assertEqual(x.shape, (2, 3, 32, 32))
        np.testing.assert_array_equal(enc.energy(self.images, references=3), e)

    def test_threads_get_the_references_that_they_ask_for(self):
        numbers = (2, 3, 5, 7)
        alone = {n: ebclr.load("run").energy(self.images, references=n) for n in numbers}
        enc = ebclr.load("run")
        found = []

        def ask(n):
            for _ in range(10):
                found.append((n, enc.energy(self.images, references=n)))

        threads = [threading.Thread(target=ask, args=(n,)) for n in numbers]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(found), 40)
        for n, e in found:
            np.testing.assert_allclose(e, alone[n], rtol=1e-3, atol=1e-3)  # other numbers of references are 0.2 away

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
                           (lambda: self.enc.embed("a\0b"), "null"),
                           (lambda: self.enc.embed(["a\0b"]), "null"),
                           (lambda: self.enc.embed(self.images.transpose(0, 3, 1, 2).astype(np.float32)), "up to 255"),
                           (lambda: self.enc.embed(np.full((2, 3, 32, 32), np.nan, np.float32)), "NaN"),
                           (lambda: self.enc.embed(np.full((2, 3, 32, 32), -np.inf, np.float32)), "[-1, 1]"),
                           (lambda: self.enc.energy(self.images, references=0), "references"),
                           (lambda: self.enc.sample(count=2**40), "at most"),
                           (lambda: ebclr.load("run", threads=-1), "threads"),
                           (lambda: ebclr.load("gone\udcff"), "gone\\xff"),
                           (lambda: ebclr.search("none.idx", [3]), "type int"),
                           (lambda: ebclr.search("none.idx", 3), "type int"),
                           (lambda: ebclr.search("none.idx", b"a.png"), "type bytes"),
                           (lambda: ebclr.search("none.idx", "a.png", run=pathlib.Path("run")), "no such index"),
                           (lambda: ebclr.train(3, out="x"), "type int"),
                           (lambda: ebclr.train(SMALL, out=3), "type int"),
                           (lambda: ebclr.train(SMALL, out="x", on_step=3), "type int"),
                           (lambda: ebclr.train({"method.lamda": 1}, out="x"), "method.lambda"),
                           (lambda: ebclr.search("none.idx", "a.png"), "no such index")]:
            with self.assertRaises(ebclr.UsageError) as caught:
                call()
            self.assertIn(text, str(caught.exception))
            self.assertIsInstance(caught.exception, ValueError)
            self.assertIsInstance(caught.exception, ebclr.Error)
        self.assertFalse(os.path.exists("x"))

    def test_names_that_are_not_utf8(self):
        os.makedirs("odd\udcff")
        for i in range(12):
            write_picture(f"odd\udcff/{i}.ppm", self.images[i])
        os.rename("odd\udcff/3.ppm", "odd\udcff/\udcfe.ppm")
        mine = {**SMALL, "data.source": "odd\udcff", "data.image_size": 32, "train.batch_size": 4}
        self.assertEqual(ebclr.train(mine, out="run\udcff"), "run\udcff")
        enc = ebclr.load("run\udcff")
        self.assertIn("run\\xff", repr(enc))
        self.assertEqual(ebclr.index("run\udcff", "odd\udcff", "odd.idx"), 12)
        hits = ebclr.search("odd.idx", "odd\udcff/\udcfe.ppm", top=12, run="run\udcff")
        self.assertEqual(hits[0][0], "\udcfe.ppm")
        self.assertEqual(sorted(name for name, _ in hits), sorted(os.listdir("odd\udcff")))
        self.assertEqual(enc.embed([os.path.join("odd\udcff", hits[0][0])]).shape, (1, enc.dim))

    def test_any_mapping_configures(self):
        self.assertEqual(ebclr.train(types.MappingProxyType(SMALL), out="proxy"), "proxy")

    def test_train_is_watched_by_knn(self):
        ebclr.train({**SMALL, "monitor.knn_every": 1}, out="watched")
        self.assertTrue(0 <= json.loads(pathlib.Path("watched/summary.json").read_text())["knn"] <= 1)
        lines = [json.loads(line) for line in pathlib.Path("watched/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(sum(line.get("event") == "knn" for line in lines), 1)
        with self.assertRaisesRegex(ebclr.UsageError, "nowhere"):
            ebclr.train({**SMALL, "monitor.knn_every": 1, "monitor.probe": "nowhere"}, out="unwatched")
        self.assertFalse(os.path.exists("unwatched"))

    def test_files_that_cannot_be_read_are_named(self):
        os.makedirs("broken")
        for i in range(12):
            write_picture(f"broken/{i}.ppm", self.images[i])
        pathlib.Path("broken/bad\udcff.png").write_bytes(b"\x89PNG\r\n\x1a\nxxxx")
        mine = {**SMALL, "data.source": "broken", "data.image_size": 32, "train.batch_size": 4}
        with self.assertWarnsRegex(UserWarning, r"bad\\xff\.png"):
            ebclr.train(mine, out="of_broken")
        self.assertIn(b"unreadable: bad", pathlib.Path("of_broken/train.log").read_bytes())
        with self.assertWarnsRegex(UserWarning, r"bad\\xff\.png"):
            self.assertEqual(ebclr.index("run", "broken", "broken.idx"), 12)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaisesRegex(UserWarning, r"bad\\xff\.png"):
                ebclr.train(mine, out="strict")
        self.assertFalse(os.path.exists("strict"))

    def test_ctrl_c_keeps_what_was_indexed(self):
        os.makedirs("many")
        write_picture("many/0.ppm", self.images[0])
        for i in range(1, 2500):
            shutil.copyfile("many/0.ppm", f"many/{i}.ppm")
        seconds = 0.1
        while not os.path.exists("many.idx"):  # until the signal falls between the first of five chunks and the last
            with self.assertRaises(KeyboardInterrupt):
                thread = interrupt_after(seconds)
                ebclr.index("run", "many", "many.idx")
                thread.join()
                time.sleep(10)  # a signal after the end raises here
            thread.join()
            seconds *= 1.2
        kept = len(ebclr.search("many.idx", "many/0.ppm", top=5000))
        self.assertTrue(kept % 512 == 0 and 0 < kept < 2500, kept)
        self.assertEqual(ebclr.index("run", "many", "many.idx"), 2500)

    def test_ctrl_c_while_files_are_read(self):
        write_picture("one.ppm", self.images[0])
        thread = interrupt_after(0.1)
        with self.assertRaises(KeyboardInterrupt):  # before the last file is missed
            self.enc.embed(["one.ppm"] * 40000 + ["gone.ppm"], batch=16)
        thread.join()

    def test_ctrl_c_while_train_reads_images(self):
        os.makedirs("slow")
        write_picture("slow/0.ppm", self.images[0])
        for i in range(1, 4000):
            shutil.copyfile("slow/0.ppm", f"slow/{i}.ppm")
        with self.assertRaises(KeyboardInterrupt):
            thread = interrupt_after(0.05)
            ebclr.train({**SMALL, "data.source": "slow"}, out="not_begun")
        thread.join()
        self.assertFalse(os.path.exists("not_begun"))

    def test_a_signal_handler_is_told_that_the_encoder_is_at_work(self):
        said = []

        def handler(*_):
            try:
                self.enc.embed(self.images[:2])
            except ebclr.UsageError as e:
                said.append(str(e))

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            self.enc.embed(np.zeros((20000, 32, 32, 3), np.uint8), batch=32)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertIn("load another", said[0])
        self.assertEqual(self.enc.embed(self.images).shape, (20, self.enc.dim))

    def test_ctrl_c_while_another_thread_is_at_work(self):
        stop = threading.Event()

        def work():
            while not stop.is_set():
                self.enc.embed(np.zeros((5000, 32, 32, 3), np.uint8), batch=5000)

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(0.1)
        thread = interrupt_after(0.3)
        try:
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    self.enc.embed(self.images)
        finally:
            stop.set()
            thread.join()
            worker.join()

    def test_a_new_thread_has_torchs_threads_during_a_call(self):
        openmp = ctypes.CDLL("libgomp.so.1")  # the team of torch in the thread that asks
        before = openmp.omp_get_max_threads()
        openmp.omp_set_num_threads(3)
        seen = []

        def look():
            ebclr.load("run")
            seen.append(openmp.omp_get_max_threads())

        def look_from_another(step):
            self.assertEqual(openmp.omp_get_max_threads(), 1)
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()

        try:
            ebclr.train(SMALL, out="alone", threads=1, on_step=look_from_another)
            self.assertEqual(set(seen), {3})
            self.assertEqual(openmp.omp_get_max_threads(), 3)
        finally:
            openmp.omp_set_num_threads(before)

    def test_images_that_moved(self):
        os.makedirs("here")
        for i, x in enumerate(self.images):
            write_picture(f"here/{i}.ppm", x)
        pathlib.Path("labels.csv").write_text("".join(f"{i}.ppm,{i % 2}\n" for i in range(len(self.images))))
        ebclr.train({**SMALL, "data.source": "here", "data.labels_csv": "labels.csv", "train.batch_size": 4,
                     "optimizer.lr": 1e-6}, out="of_here")
        want = ebclr.load("of_here").energy(self.images)
        os.rename("here", "there")
        os.remove("labels.csv")  # nothing here needs labels
        enc = ebclr.load("of_here")
        with self.assertRaisesRegex(ebclr.UsageError, "data= in Python"):
            enc.energy(self.images)
        with self.assertWarnsRegex(UserWarning, "labels are not there"):
            np.testing.assert_array_equal(enc.energy(self.images, data="there"), want)
        np.testing.assert_array_equal(enc.energy(self.images), want)  # it knows now
        self.assertEqual(ebclr.load("of_here").sample(count=2, steps=1, data=pathlib.Path("there"))[0].shape[0], 2)
        with self.assertRaisesRegex(ebclr.UsageError, "data= in Python"):
            ebclr.train(resume="of_here")
        with self.assertWarnsRegex(UserWarning, "labels are not there"):
            self.assertEqual(ebclr.train(resume="of_here", data="there"), "of_here")
        with self.assertRaisesRegex(ebclr.UsageError, "data.source"):
            ebclr.train(SMALL, out="other", data="there")

    def test_a_forked_child_does_not_hang(self):
        two = ebclr.load("run", threads=2)
        two.embed(self.images)
        one = ebclr.load("run", threads=1)
        want = one.embed(self.images)

        def child(queue):
            try:
                two.embed(self.images)
                queue.put("embedded")
            except ebclr.UsageError as e:
                queue.put(str(e))
            np.testing.assert_array_equal(one.embed(self.images), want)
            np.testing.assert_array_equal(ebclr.load("run", threads=1).embed(self.images), want)
            queue.put("done")

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        process.join(60)
        if process.exitcode is None:
            process.kill()
            self.fail("it hangs")
        self.assertIn("spawn", queue.get())
        self.assertEqual(queue.get(), "done")
        self.assertEqual(two.embed(self.images).shape, (20, two.dim))  # here all is as before

    @unittest.skipIf(torch is None, "no python3-torch")
    def test_torch_keeps_its_threads(self):
        before = torch.get_num_threads()
        os.makedirs("few", exist_ok=True)
        for i in range(3):
            write_picture(f"few/{i}.ppm", self.images[i])
        torch.set_num_threads(3)
        seen = []
        try:
            enc = ebclr.load("run", threads=2)
            enc.embed(self.images)
            enc.sample(count=1, steps=1)
            ebclr.index("run", "few", "few.idx", threads=1)
            ebclr.search("few.idx", "few/1.ppm", threads=2)
            ebclr.search("few.idx", "few/1.ppm")
            ebclr.train(SMALL, out="with_threads", threads=2, on_step=lambda s: seen.append(torch.get_num_threads()))
            self.assertEqual(torch.get_num_threads(), 3)
            self.assertEqual(set(seen), {2})
        finally:
            torch.set_num_threads(before)

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
