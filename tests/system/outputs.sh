# What commands print and write is read back as a program would: JSON, tables, CSV.
source "$(dirname "$0")/lib.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3 to read the output with"; exit 77; }

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 2 --set checkpoint.keep_every=1 --out run

# Names with commas, quotes, blanks and newlines survive embed's CSV and energy's.
mkdir -p 'photos/a, b' 'photos/c "d"'
for i in 1 2 3 4; do
  "$EBCLR" data show shapes --count 1 --views 1 --epoch $i --out "photos/a, b/x $i.png" >/dev/null
  "$EBCLR" data show shapes --count 1 --views 1 --epoch 9 --out "photos/c \"d\"/y$i.png" >/dev/null
done
cp 'photos/a, b/x 1.png' $'photos/a, b/two\nlines.png'
"$EBCLR" embed run --data photos --out emb.npy --csv --json >embed.json
"$EBCLR" energy run --data photos --out e.csv --json >energy.json
python3 - <<'PY' || fail "embed or energy"
import csv, json, struct, ast
told = json.load(open("embed.json"))
rows = list(csv.reader(open("emb.csv", newline="")))
lines = [line.rstrip("\n") for line in open("emb.files.txt")]
assert len(lines) == told["images"] == 9, "a name broke a line: %r" % lines
assert "a, b/two\\nlines.png" in lines, lines
names = [line.replace("\\n", "\n") for line in lines]
assert rows[0][:4] == ["file", "split", "label", "f0"], rows[0][:4]
assert len(rows) == 1 + told["images"], (len(rows), told["images"])
assert all(len(r) == 3 + told["dimensions"] for r in rows), "a name broke a line"
assert [r[0] for r in rows[1:]] == names
assert any("," in n for n in names) and any('"' in n for n in names), names
assert {r[2] for r in rows[1:]} == {"0", "1"}
classes = open("emb.classes.txt").read().splitlines()
assert all(classes[int(r[2])] == r[0].split("/")[0] for r in rows[1:]), classes
assert {r[1] for r in rows[1:]} <= {"train", "test"}
# The CSV holds what the array holds.
raw = open("emb.npy", "rb").read()
header = struct.unpack("<H", raw[8:10])[0]
shape = ast.literal_eval(raw[10:10 + header].decode())["shape"]
assert shape == (9, told["dimensions"]), shape
values = struct.unpack("<%df" % (shape[0] * shape[1]), raw[10 + header:])
for i, r in enumerate(rows[1:]):
    for d, text in enumerate(r[3:]):
        v = values[i * shape[1] + d]
        assert abs(float(text) - v) <= 1e-6 * max(1, abs(v)), (i, d, text, v)
energies = list(csv.DictReader(open("e.csv", newline="")))
assert len(energies) == json.load(open("energy.json"))["sets"][0]["images"]
assert all(e["file"] in names and float(e["energy"]) == float(e["energy"]) for e in energies), energies[0]
PY

# Another set under the same name: nothing of the first is left beside it.
"$EBCLR" embed run --data photos/'a, b' --out emb.npy >/dev/null
[ "$(wc -l <emb.files.txt)" = 5 ] && [ "$(ls emb.*)" = "$(printf 'emb.files.txt\nemb.npy')" ] || fail "left behind: $(ls emb.*)"

# The whole table with pictures, few labels and both readings of the neighbours, as JSON and as text.
ALL=(--limit 60 --limit-test 30 --k 5 --knn-protocol paper,dino --probe-epochs 5 --rates 2 --labels-per-class 1,2 --draws 2)
"$EBCLR" eval all run "${ALL[@]}" --plots plots --json >all.json
"$EBCLR" eval all run "${ALL[@]}" >all.txt
python3 - <<'PY' || fail "eval all"
import json, os, re
j = json.load(open("all.json"))
assert j["train_images"] == 60 and j["test_images"] == 30, j
rows = j["rows"]
assert {(r["subject"], r["judge"], r["protocol"]) for r in rows} == {
    (s, *p) for s in ("raw pixels", "untrained encoder", "trained encoder")
    for p in (("knn", "paper"), ("knn", "dino"), ("linear", "honest"))}
for r in rows:
    assert r["correct"] == sum(r["confusion"][i][i] for i in range(len(r["confusion"])))
    assert abs(r["accuracy"] - r["correct"] / 30) < 1e-9
    assert r["interval95"][0] <= r["accuracy"] <= r["interval95"][1]
    if r["judge"] == "linear":
        assert [f["labels_per_class"] for f in r["few_labels"]] == [1, 2]
        for f in r["few_labels"]:
            assert len(f["draws"]) == 2 and abs(f["accuracy_mean"] - sum(f["draws"]) / 2) < 1e-9
assert len(j["pictures"]) == len(rows)
for p in j["pictures"]:
    assert open(p, "rb").read(4) == b"\x89PNG" and os.path.getsize(p) > 1000, p
# The table says the same.
text = open("all.txt").read()
line = re.search(r"^trained encoder, epoch 2 +linear +honest +\d+ +([\d.]+) +([\d.]+) \.\. ([\d.]+)$", text, re.M)
want = next(r for r in rows if r["subject"] == "trained encoder" and r["judge"] == "linear")
assert line and abs(float(line[1]) - 100 * want["accuracy"]) < 0.01, text
few = re.findall(r"^trained encoder +(\d) +([\d.]+) +([\d.]+) +2$", text, re.M)
assert [int(f[0]) for f in few] == [1, 2], text
assert abs(float(few[1][1]) - 100 * want["few_labels"][1]["accuracy_mean"]) < 0.01
PY

# Curves and what they compare to.
"$EBCLR" train "${SMALL[@]}" --set method.name=simclr --epochs 2 --set checkpoint.keep_every=1 --out rival
for r in run rival; do "$EBCLR" eval curve $r --limit 60 --limit-test 30 --k 5 --json >curve-$r.json; done
"$EBCLR" compare rival run --json >compare.json
"$EBCLR" compare rival run >compare.txt
python3 - <<'PY' || fail "curve or compare"
import csv, json
for r in ("run", "rival"):
    j = json.load(open("curve-%s.json" % r))
    kept = json.load(open(j["files"][0]))
    table = list(csv.DictReader(open(j["files"][1])))
    assert [p["epoch"] for p in j["points"]][:2] == [0, 1] and j["points"][-1]["epoch"] == 2
    assert len(kept["points"]) == len(table) == len(j["points"])
    for a, b, c in zip(j["points"], kept["points"], table):
        assert a["accuracy"] == b["accuracy"] and abs(float(c["accuracy"]) - a["accuracy"]) < 1e-6
        assert b["total"] == 30 and b["correct"] == round(30 * b["accuracy"])
c = json.load(open("compare.json"))
assert c["reference"] == "run" and [r["run"] for r in c["runs"]] == ["rival", "run"]
for r in c["runs"]:
    if r["void_because"]:
        assert r["efficiency_epochs"] is None and not r["reached"]
        assert r["run"] == "run" or r["void_because"] in open("compare.txt").read()
    else:
        low, high = r["efficiency_epochs"]
        assert r["reached"] == (high is not None) and (high is None or 0 <= low < high), r
PY

# A set that lies on this machine already is obtained without a network; the rest of `data get` needs none to refuse.
"$EBCLR" data list --json >list.json
python3 -c '
import json
names = {e["name"] for e in json.load(open("list.json"))}
assert {"mnist", "fmnist", "cifar10", "cifar100", "shapes"} <= names, names' || fail "data list --json"
expect_error 2 "nosuchset" "$EBCLR" data get nosuchset
expect_error 1 "127.0.0.1" timeout 100 "$EBCLR" data get cifar10 --source official --base-url https://127.0.0.1:1/x
expect_error 1 "127.0.0.1" timeout 100 "$EBCLR" data get cifar10 --base-url https://127.0.0.1:1/x
! grep -q mirror err.txt || fail "another place than the one that was named: $(cat err.txt)"
expect_error 2 "does not go with --source mirror" "$EBCLR" data get cifar10 --source mirror --base-url https://127.0.0.1:1/x
[ ! -e "$EBCLR_DATA/cifar10/data_batch_1.bin" ] || fail "half a set was left"

# All benchmarks in miniature: every row is there and is a number.
"$EBCLR" bench all --repeats 1 --warmup 0 --width 8 --batch 4 --image 16x1 --steps 1 --seconds 0.1 --train 200 --queries 20 --dim 8 \
  --threads 1 --json >bench.json 2>/dev/null
python3 - <<'PY' || fail "bench all"
import json, math
rows = json.load(open("bench.json"))
assert [r["bench"] for r in rows] == ["augment", "augment", "knn", "knn", "embed", "step"], [r["bench"] for r in rows]
assert all(math.isfinite(v) for r in rows for v in r.values() if isinstance(v, float)), rows
assert all(r["same_neighbours"] > 0.99 for r in rows if r["bench"] == "knn")
assert all(r["views_per_second_per_core"] > 0 for r in rows if r["bench"] == "augment")
PY

# Decoding pictures: both of our ways, and a folder without any is refused.
mkdir -p pictures none
for i in 1 2 3; do { printf 'P6\n40 30\n255\n'; head -c 3600 /dev/zero; } >pictures/$i.ppm; done
"$EBCLR" bench decode pictures --image-size 32 --json >decode.json
python3 - <<'PY' || fail "bench decode"
import json
rows = json.load(open("decode.json"))
assert len(rows) == 2 and all(r["images"] == 3 and r["images_per_second_per_core"] > 0 for r in rows), rows
PY
expect_error 2 "no pictures" "$EBCLR" bench decode none

echo "outputs: read back as they were meant"
