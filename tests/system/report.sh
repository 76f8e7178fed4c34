# A report of runs, as a user asks for it; how it looks is tests/report/browser.sh's business.
source "$(dirname "$0")/lib.sh" "$1"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 2 --set log.samples_every=1 --out one/run
"$EBCLR" train "${SMALL[@]}" --epochs 1 --set method.name=byol --out two/run
FEW=(--eval-train 40 --eval-test 60 --map-images 30 --threads 2)

"$EBCLR" report one/run two/run "${FEW[@]}" --out pages/both.html >out.txt 2>err.txt
[ ! -s err.txt ] || fail "said something on stderr without a terminal: $(cat err.txt)"
grep -q '^wrote pages/both.html (' out.txt || fail "said '$(cat out.txt)'"
for part in 'one/run' 'two/run' '>finished<' 'class="matrix"' 'class="map"' 'class="sprite"' 'Energy gap' \
  'chains after epoch 2' 'method.name' '40 train and 60 test images of shapes' 'ebclr report one/run two/run'; do
  grep -qF -- "$part" pages/both.html || fail "the page lacks $part"
done
grep -qE 'https?://' pages/both.html && fail "the page names an address"

# Every method's run can be read, also one that was interrupted, and nothing is computed when not asked for.
for m in simclr moco simsiam; do "$EBCLR" train "${SMALL[@]}" --epochs 1 --set method.name=$m --out $m; done
rm simclr/summary.json
rm -r moco/checkpoints
"$EBCLR" report one/run two/run simclr moco simsiam --no-eval --json --out all.html >all.json
grep -q '"file": "all.html"' all.json || fail "$(cat all.json)"
grep -qF '>unfinished<' all.html || fail "a run without a summary counts as finished"
grep -qE 'class="(matrix|map)"' all.html && fail "--no-eval computed something"

# Trained on, a run is not what was judged before; pages and comparisons say so until it is judged again.
JUDGE=(--limit 48 --limit-test 30 --k 5 --threads 2)
for r in one/run two/run; do "$EBCLR" eval curve $r "${JUDGE[@]}" >/dev/null; done
"$EBCLR" eval knn two/run "${JUDGE[@]}" --json >two/run/eval/knn.json
"$EBCLR" compare one/run two/run >same.txt
! grep -q 'ends at epoch' same.txt || fail "compare: $(cat same.txt)"
"$EBCLR" train --resume two/run --epochs 3 --quiet --threads 2
"$EBCLR" report one/run two/run --no-eval --out older.html >/dev/null
grep -qF ' (epoch 1 of 3)</td>' older.html || fail "the accuracy of older weights stands for the run's"
! grep -qF 'of 2)</td>' older.html || fail "the accuracy of the newest weights is called old"
"$EBCLR" compare one/run two/run >older.txt
grep -q 'note: the curve of two/run ends at epoch 1, the run at 3' older.txt || fail "compare: $(cat older.txt)"
"$EBCLR" eval knn two/run "${JUDGE[@]}" --json >two/run/eval/knn.json
"$EBCLR" report two/run --no-eval --out newer.html >/dev/null
! grep -qF ' (epoch 1 of 3)</td>' newer.html || fail "judged again, the curve of before still stands for the run"

# Damage is said in the page.
echo 'garbage' >>simclr/metrics.jsonl
echo 'no picture' >one/run/samples/epoch-0001.png
"$EBCLR" report simclr moco one/run "${FEW[@]}" --out damaged.html >/dev/null 2>err.txt
[ ! -s err.txt ] || fail "stderr: $(cat err.txt)"
for part in 'lines are damaged' 'has no checkpoint' 'epoch-0001.png: not a picture'; do
  grep -qF -- "$part" damaged.html || fail "the page does not say: $part"
done

# Mistakes.
expect_error 2 "not a run folder" "$EBCLR" report one
expect_error 2 "no such run folder" "$EBCLR" report one/run nowhere
expect_error 2 "is a folder" "$EBCLR" report one/run --no-eval --out one
expect_error 2 "RUN" "$EBCLR" report
echo "report: five methods, interrupted and damaged runs, mistakes"
