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
grep -q 'one chain for eight images' train.txt && grep -q '  chains: 0.125' run/config.yaml && grep -q '  kind: step_size' run/config.yaml ||
  fail "the recipe is not fast: $(cat train.txt)"
! grep -qE '^  (encoder resnet18|batches of|[0-9]+ epochs)' train.txt || fail "what was overridden is said to be chosen: $(cat train.txt)"
at() { grep -n "$1" train.txt | head -n 1 | cut -d: -f1; }
[ "$(at 'expected end')" -lt "$(at '^epoch ')" ] || fail "the expected end is said after training: $(cat train.txt)"
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

# Three pictures are enough; the run is named after the folder however that is written; what is to be copied is quoted.
mkdir trio && for i in 1 2 3; do picture "trio/$i.ppm" 32 32; done
FEW=(--set encoder.width=8 --set head.out=16 --set sampler.steps=2 --set guard.collapse=0 --threads 1 --epochs 1)
"$EBCLR" train --data trio/ --budget 5 "${FEW[@]}" >few.txt 2>&1 || fail "three pictures: $(cat few.txt)"
[ -s runs/ebclr-trio/config.yaml ] || fail "the run of trio/ is in $(ls runs)"
grep -qE '^  batches of [23]: there are [23] images to learn from' few.txt || fail "batches of three pictures: $(cat few.txt)"
"$EBCLR" train --data trio/. --quiet "${FEW[@]}"
[ -s runs/ebclr-trio-2/config.yaml ] || fail "the run of trio/. is in $(ls runs)"
"$EBCLR" train --data trio --out 'odd run' "${FEW[@]}" >few.txt 2>&1
grep -qF "ebclr report 'odd run' --out" few.txt || fail "a command that cannot be copied: $(tail -n 3 few.txt)"

# A rival keeps its own rule of the learning rate: 0.03 for 256 images.
"$EBCLR" train --data trio --set method.name=simclr --out rival "${FEW[@]}" >few.txt 2>&1 || fail "a rival on a folder: $(cat few.txt)"
grep -qE 'learning rate 0\.000[0-9]+$' rival/train.log && ! grep -q 'chain' few.txt || fail "the rival has EBCLR's settings: $(cat rival/train.log few.txt)"

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

# Each split has its own limit; what a limit leaves out has not changed, and another folder lacks nothing.
"$EBCLR" embed run --limit 3 --limit-test 2 --out limited.npy --json >limited.json
"$EBCLR" embed run --data elsewhere/scans --out scans.npy --json >scans.json
"$EBCLR" embed run --limit-test 1 --out tested.npy --json >tested.json
"$EBCLR" energy run --limit 4 --limit-test 1 --out both.csv --json >both.json 2>/dev/null
"$EBCLR" energy run --limit-test 1 --split test --out one.csv --json >one.json 2>/dev/null
python3 - <<'PY' || fail "limits, another folder"
import csv, json
limited, scans, tested = (json.load(open(n + ".json")) for n in ("limited", "scans", "tested"))
train = sum(r["split"] == "train" for r in csv.DictReader(open("run/images.csv", newline="")))
assert [limited["images"], scans["images"], tested["images"]] == [5, 2, train + 1], (limited, scans, tested)
assert not any("since training" in n for j in (limited, scans, tested) for n in j["notes"]), (limited, scans, tested)
assert [json.load(open(n + ".json"))["sets"][0]["images"] for n in ("both", "one")] == [5, 1]
PY

# A link is no copy of what it leads to: whoever removes copies keeps the file. Only an index is replaced by an index.
mkdir -p dups/real && cp "$FILES"/two.gif dups/real/photo.gif && cp "$FILES"/cmyk.jpg "$FILES"/animated.webp dups/
ln -s real/photo.gif dups/a_link.gif && ln -s real dups/album && ln dups/real/photo.gif dups/real/z.gif && cp dups/cmyk.jpg dups/d.jpg
"$EBCLR" index run --data dups --out d.idx --json >index.json 2>/dev/null
grep -q '"images": 4' index.json || fail "names of one file: $(cat index.json)"
"$EBCLR" duplicates d.idx --similarity 1 --agreement 1 --out d.csv >/dev/null
! grep -qE 'link|album|z\.gif' d.csv && [ "$(awk -F, '$3 == 1' d.csv | grep -c 'jpg$')" = 2 ] &&
  ! awk -F, '$3 == 1' d.csv | grep -q gif || fail "a link is called a copy: $(cat d.csv)"
expect_error 2 "read at 32 pixels, not 16" "$EBCLR" index run --data dups --out d.idx --image-size 16
expect_error 2 "nosuch: no such folder" "$EBCLR" index run --data nosuch --out n.idx
expect_error 2 "q/: names a folder; name a file" "$EBCLR" index run --data dups --out q/
cp list.csv precious
expect_error 2 "no index of ebclr" "$EBCLR" index run --data dups --out precious --fresh
cmp list.csv precious || fail "index --fresh replaced a file that is no index"

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

# A split and labels are said of the judged images: strangers are all taken. No split is made up; grey encoders read pictures.
"$EBCLR" energy run --split test --labels-csv labels.csv --against elsewhere/scans --out split.csv --json >split.json 2>err.txt || fail "$(cat err.txt)"
"$EBCLR" train --data trio --test-fraction 0 --grayscale --out grey --quiet "${FEW[@]}"
expect_error 2 "'trio' has no test images; try another --split" "$EBCLR" energy grey --split test --out x.csv
expect_error 2 "'trio' has no test images; try another --split" "$EBCLR" embed grey --split test --out x.npy
"$EBCLR" energy grey --against elsewhere/scans --out grey.csv --json >grey.json 2>err.txt || fail "$(cat err.txt)"
grep -q 'converted to grey' err.txt || fail "no note of what was done to colour: $(cat err.txt)"
python3 - <<'PY' || fail "energy: splits"
import csv, json
sizes = lambda name: [s["images"] for s in json.load(open(name + ".json"))["sets"]]
test = sum(r["split"] == "test" for r in csv.DictReader(open("run/images.csv", newline="")))
assert sizes("split") == [test, 2], sizes("split")
assert sizes("grey") == [3, 2], sizes("grey")
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
expect_error 2 "photos: the images are not there; where they have moved, name the folder (--data FOLDER" "$EBCLR" train --resume run --epochs 3
expect_error 2 "name the folder (--data FOLDER" "$EBCLR" embed run --out again.npy
expect_error 2 "name the folder (--data FOLDER" "$EBCLR" export run --part energy --format torchscript --out energy.pt
expect_error 2 "name the folder (--data FOLDER" "$EBCLR" eval strangers run
"$EBCLR" export run --part energy --format torchscript --out energy.pt --data moved >/dev/null || fail "export of the energy after moving"
"$EBCLR" eval strangers run --limit 10 --data moved >/dev/null || fail "eval strangers after moving"
for command in "export run --part energy --out x.onnx" "eval strangers run" "sample run --out x.png"; do # other images would define another energy
  expect_error 2 "scans: does not hold the images of run" "$EBCLR" $command --data elsewhere/scans
done
"$EBCLR" report run --data moved --out moved.html >/dev/null 2>&1
grep -q 'What looks alike to the encoder' moved.html || fail "no neighbours in the report after moving"
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

mkdir -p kinds/{a,b} && for i in 1 2 3 4 5 6; do for k in a b; do picture "kinds/$k/$i.ppm" 32 32; done; done
"$EBCLR" train --data kinds --image-size 32 "${QUICK[@]}" --epochs 1 --probe kinds --out self >self.txt 2>&1 || fail "$(cat self.txt)"
grep -q 'what is watched was learnt from' self.txt || fail "the probe is the train folder, without a word: $(cat self.txt)"

# A run inside its own pictures: what it draws is no data, neither for it nor for the next.
mkdir -p inside/{a,b} && for i in 1 2 3 4 5 6 7 8; do for k in a b; do picture "inside/$k/$i.ppm" 32 32; done; done
cd inside
"$EBCLR" train --data . --image-size 32 "${QUICK[@]}" --epochs 1 --set log.samples_every=1 --quiet
[ -s runs/ebclr-inside/samples/epoch-0001.png ] || fail "no samples: $(ls -R runs)"
"$EBCLR" train --resume runs/ebclr-inside --epochs 2 >../inside.txt 2>&1 || fail "resuming among its own samples: $(cat ../inside.txt)"
grep -q 'left out, written by runs: runs/ebclr-inside' ../inside.txt || fail "what is left out is not said: $(cat ../inside.txt)"
"$EBCLR" eval knn runs/ebclr-inside --k 3 >/dev/null 2>&1 || fail "eval knn of a run inside its class folders"
"$EBCLR" index runs/ebclr-inside --data . --out ../inside.idx --json >../inside.json 2>/dev/null
grep -q '"images": 16' ../inside.json || fail "an index of what a run drew: $(cat ../inside.json)"
cd ..

# Folders split, a CSV labels: test images are not learnt from.
mkdir -p given/{train,test,extra} && for i in $(seq 10 21); do picture "given/train/$i.ppm" 32 32; done
for i in $(seq 10 15); do picture "given/test/$i.ppm" 32 32; done && picture given/extra/1.ppm 32 32
(cd given && for f in train/*.ppm test/*.ppm; do i=${f##*/}; echo "$f,c$((${i%.ppm} % 2))"; done) >given.csv
"$EBCLR" train --data given --labels-csv given.csv --image-size 32 "${QUICK[@]}" --epochs 1 --out by_csv >given.txt 2>&1 || fail "$(cat given.txt)"
grep -q '1 image(s) lie beside train and test and are in neither: extra' given.txt || fail "images beside the splits: $(cat given.txt)"
"$EBCLR" finetune by_csv --labels given.csv --epochs 1 --threads 1 --quiet --out tuned_csv 2>/dev/null
for run in by_csv tuned_csv; do
  [ "$(grep -c '^train/.*,train,' $run/images.csv)" = 12 ] && [ "$(grep -c '^test/.*,test,' $run/images.csv)" = 6 ] ||
    fail "the folders do not split: $(cat $run/images.csv)"
done

# Labels and a probe that have moved: who needs none goes on without, who does is told the new place.
cp -r probe other_probe
"$EBCLR" train --data given --labels-csv given.csv --image-size 32 "${QUICK[@]}" --epochs 1 --probe probe/labels.csv --out away --quiet
mv given.csv labels_now.csv && rm -r probe
"$EBCLR" train --resume away --epochs 2 >away.txt 2>&1 || fail "without labels and probe: $(cat away.txt)"
grep -q 'given.csv: the labels are not there' away.txt && grep -q 'goes on without its monitor' away.txt || fail "$(cat away.txt)"
"$EBCLR" sample away --count 2 --steps 1 --out away.png >/dev/null 2>&1 || fail "sample without labels"
"$EBCLR" embed away --out away.npy >/dev/null 2>&1 || fail "embed without labels"
"$EBCLR" energy away --out away.csv >/dev/null 2>&1 || fail "energy without labels"
expect_error 2 "given.csv: no such file" "$EBCLR" eval knn away
expect_error 2 "given.csv: no such file" "$EBCLR" finetune --resume tuned_csv --epochs 2
expect_error 2 "cannot change data.labels_csv" "$EBCLR" train --resume run --labels-csv labels_now.csv
expect_error 2 "cannot change monitor.probe" "$EBCLR" train --resume run --probe other_probe/labels.csv
expect_error 2 "nowhere.csv: no such file" "$EBCLR" train --resume away --labels-csv nowhere.csv
"$EBCLR" train --resume away --epochs 3 --labels-csv labels_now.csv --probe other_probe/labels.csv >away.txt 2>&1 || fail "$(cat away.txt)"
! grep -qE 'not there|without its monitor' away.txt || fail "labels in a new place: $(cat away.txt)"
[ "$(grep -c '"event":"knn"' away/metrics.jsonl)" -ge 2 ] || fail "the moved probe was not asked"
"$EBCLR" eval knn away --k 3 >/dev/null 2>&1 || fail "the run does not know where its labels are now"
"$EBCLR" finetune --resume tuned_csv --epochs 2 --labels labels_now.csv --quiet || fail "labels of a classifier in a new place"

# Words that are nearly right.
expect_error 2 "there is no command 'trian'; did you mean train?" "$EBCLR" trian
expect_error 2 "did you mean --data?" "$EBCLR" train --dat few
echo "photos: from folder to encoder"
