# A folder of somebody's pictures, from the first look to what was learnt; and what used to trip people up.
source "$(dirname "$0")/lib.sh" "$1"
FILES=$(dirname "$(realpath "$0")")/../image/files
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

# 40 pictures of mixed sizes in two folders that are no classes, two that cannot be read, one without an ending.
picture() { # NAME WIDTH HEIGHT: noise
  { printf 'P6 %d %d 255\n' "$2" "$3"; head -c $(($2 * $3 * 3)) /dev/urandom; } >"$1"
}
mkdir -p photos/2024/may photos/2025/june
for i in $(seq 10 27); do picture "photos/2024/may/$i.ppm" $((20 + i)) 30; done
for i in $(seq 10 27); do picture "photos/2025/june/$i.ppm" 33 $((20 + i)); done
cp "$FILES"/two.gif "$FILES"/animated.webp "$FILES"/cmyk.jpg photos/
cp "$FILES"/two.gif photos/no_ending
: >photos/empty.jpg
mkfifo pipe && ln -s "$WORK/pipe" photos/pipe.png && ln -s "$WORK/photos" photos/2024/round

"$EBCLR" data stats photos --json >stats.json
python3 - <<'PY' || fail "data stats"
import json
s = json.load(open("stats.json"))
assert s["train"]["images"] + s["test"]["images"] == 40, s
assert [u["file"] for u in s["unreadable"]] == ["empty.jpg", "pipe.png"], s["unreadable"]
assert len(s["fingerprint"]) == 32
PY
"$EBCLR" data show photos --image-size 32 --count 4 --views 2 --out sheet.png >/dev/null
expect_error 2 "ends in .png" "$EBCLR" data show photos --out sheet.svg

# Settings are chosen and said; the run ends in the time that was given to it, roughly.
QUICK=(--set encoder.width=8 --set head.out=16 --set sampler.steps=2 --set train.batch_size=8 --threads 1
  --set guard.collapse=0)  # noise in a tiny network says little about collapse
"$EBCLR" train --data photos --image-size 32 --budget 2s "${QUICK[@]}" --epochs 2 --out run >train.txt 2>&1 || fail "$(cat train.txt)"
grep -q 'chosen for them' train.txt && grep -q 'expected end' train.txt || fail "what was chosen is not said: $(cat train.txt)"
grep -q 'ebclr report run' train.txt || fail "what to do next without labels: $(tail -n 3 train.txt)"
! grep -q 'eval knn' train.txt || fail "advice that cannot work without labels"
[ "$(wc -l <run/metrics.jsonl)" -ge 4 ] || fail "metrics.jsonl holds $(wc -l <run/metrics.jsonl) lines"
grep -q "source: $WORK/photos" run/config.yaml || fail "the path is not absolute: $(grep source run/config.yaml)"
grep -q 'epoch 2 of 2' run/train.log && grep -q 'unreadable: pipe.png: not a regular file' run/train.log || fail "train.log: $(cat run/train.log)"
grep -q '1 thread$' run/train.log || fail "threads: $(grep thread run/train.log)"
# The list of images comes back where it was lost: without it changes would go unnoticed for ever.
mv run/images.csv list.csv
"$EBCLR" train --resume run --quiet --threads 1
cmp list.csv run/images.csv || fail "the list of images did not come back"

# From another folder; all images by default, with their split; single files.
mkdir elsewhere && cd elsewhere
"$EBCLR" embed ../run --out all.npy --csv --json >embed.json
"$EBCLR" energy ../run --out e.csv --json >energy.json 2>/dev/null
# Other images are not the run's own with files missing.
mkdir scans && for f in two.gif cmyk.jpg; do cp ../photos/$f scans/scan-$f; done
"$EBCLR" energy ../run --against scans --out against.csv >against.txt 2>&1 || fail "$(cat against.txt)"
grep -q AUROC against.txt && ! grep -q 'since training' against.txt || fail "energy --against: $(cat against.txt)"
"$EBCLR" embed ../run ../photos/two.gif ../photos/cmyk.jpg --out two.npy --json >two.json
python3 - <<'PY' || fail "embed, energy"
import csv, json
rows = list(csv.DictReader(open("all.csv", newline="")))
listed = {r["path"]: r["split"] for r in csv.DictReader(open("../run/images.csv", newline="")) if r["split"] != "unreadable"}
assert len(rows) == 40 == json.load(open("embed.json"))["images"], len(rows)
assert {r["file"]: r["split"] for r in rows} == listed, "the split is not that of the run"
assert sorted(set(listed.values())) == ["test", "train"], set(listed.values())
assert len(json.load(open("embed.json"))["unreadable"]) == 2
energies = list(csv.DictReader(open("e.csv", newline="")))
assert len(energies) == 40 and {e["split"] for e in energies} == {"train", "test"}, len(energies)
assert json.load(open("two.json"))["images"] == 2
PY
cd ..

# Labels that come later and for a part of the images: the run's own split is judged on.
python3 - <<'PY'
import csv
rows = [r for r in csv.DictReader(open("run/images.csv", newline="")) if r["path"].endswith(".ppm")]
test, train = [r["path"] for r in rows if r["split"] == "test"], [r["path"] for r in rows if r["split"] == "train"]
with open("labels.csv", "w") as f:
    for i, p in enumerate(test + train[:20]): f.write(f"{p},{'x' if i % 2 else 'y'}\n")
json_test = len(test)
open("tests.txt", "w").write(str(json_test))
PY
"$EBCLR" eval knn run --labels-csv labels.csv --k 3 --json >knn.json
python3 - <<'PY' || fail "eval with labels for a part"
import json
k = json.load(open("knn.json"))
assert k["train_images"] == 20 and k["test_images"] == int(open("tests.txt").read()), k
assert any("only these are judged" in n for n in k["notes"]), k["notes"]
PY

# Pictures: a map of thumbnails, a report with neighbours and groups.
"$EBCLR" map run --method pca --out map.png >/dev/null
expect_error 2 "ends in .png" "$EBCLR" map run --out map.svg
"$EBCLR" report run --out report.html >/dev/null 2>&1
grep -q 'What looks alike to the encoder' report.html || fail "no neighbours in the report"
grep -q 'pipe.png: not a regular file' report.html || fail "the report does not name what could not be read"
grep -q 'hardly moved' <<<"$("$EBCLR" sample run --count 4 --steps 2 --out s.png)" || fail "sample does not say that chains have not moved"

# A changed folder is noticed; a moved one is not a changed one.
cp -r photos moved && rm -rf photos
expect_error 2 "neither a known set nor a folder" "$EBCLR" train --resume run --epochs 3
"$EBCLR" train --resume run --epochs 3 --data moved --quiet
grep -q "source: $WORK/moved" run/config.yaml || fail "the run does not know where its images are now"
grep -q '"images": 40' <<<"$("$EBCLR" embed run --out again.npy --json)" || fail "embed after moving"
cp "$FILES"/two.gif moved/new.gif
expect_error 2 "1 file is new (new.gif)" "$EBCLR" train --resume run --epochs 4
rm moved/new.gif moved/cmyk.jpg
expect_error 2 "1 file is missing (cmyk.jpg)" "$EBCLR" train --resume run --epochs 4
printf x >>moved/no_ending
expect_error 2 "1 file has changed (no_ending)" "$EBCLR" train --resume run --epochs 4

# A probe to watch by, from a CSV.
mkdir probe && for i in 1 2 3 4 5 6; do picture "probe/$i.ppm" 32 32; done
for i in 1 2 3 4 5 6; do echo "$i.ppm,c$((i % 2))"; done >probe/labels.csv
"$EBCLR" train --data moved --image-size 32 "${QUICK[@]}" --epochs 2 --probe probe/labels.csv --out probed --quiet
grep -q '"event":"knn"' probed/metrics.jsonl || fail "the probe was not asked"

# Words that are nearly right.
expect_error 2 "did you mean train?" "$EBCLR" trian
expect_error 2 "did you mean --data?" "$EBCLR" train --dat few
echo "photos: from folder to encoder"
