# Labels train a whole encoder: the run, its classes, resume after SIGKILL, and what goes wrong.
source "$(dirname "$0")/lib.sh" "$1"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out run
mkdir -p photos/round photos/other
for i in $(seq 1 24); do "$EBCLR" data show shapes --count 1 --seed "$i" --out photos/$([ $((i % 3)) = 0 ] && echo round || echo other)/$i.png >/dev/null; done
(cd photos && for f in */*.png; do echo "$f,${f%%/*}"; done) | head -n 20 >few.csv
TUNE=(--quiet --threads 2 --set log.every=1)

# From a CSV, with the classifier on the frozen encoder beside it.
"$EBCLR" finetune run --labels few.csv --data photos --out tuned --epochs 4 "${TUNE[@]}" --json >out.json 2>err.txt
grep -q '"held_out"' out.json && grep -q '"frozen"' out.json && grep -q '"interval"' out.json || fail "no verdict: $(cat out.json)"
grep -q '"total": 4' out.json && grep -q '"labels": 16' out.json || fail "a fifth of 20 labels is held out: $(cat out.json)"
"$EBCLR" classify tuned --data photos --out own.csv --suggest 3 >out.txt
[ "$(grep -c . own.csv)" = 25 ] && grep -q "by the run's own classes" out.txt || fail "classify: $(cat out.txt)"
head -n 1 own.csv | grep -q 'p_other,p_round' || fail "classes of the predictions: $(head -n 1 own.csv)"
"$EBCLR" classify tuned --labels few.csv --data photos --out p.csv >/dev/null 2>&1 || fail "a frozen classifier on a tuned run"
"$EBCLR" classify run --labels few.csv --data photos --out p.csv >/dev/null 2>&1 || fail "classify"

# The split that a run keeps leaves labels unused, and says so; other pictures of the same names and sizes have none.
noise() { mkdir -p "$1" && for i in $(seq "$2" "$3"); do { printf 'P6 24 24 255\n'; head -c 1728 /dev/urandom; } >"$1/$i.ppm"; done; }
for c in a b; do noise pool/$c 1 8; done
"$EBCLR" train --data pool --image-size 24 --epochs 1 --out kept --quiet --threads 2 --set encoder.width=8 --set head.out=16 \
  --set train.batch_size=4 --set sampler.steps=2 --set guard.collapse=0
noise pool/a 9 11
"$EBCLR" finetune kept --out k --epochs 1 --limit 6 --threads 2 >out.txt 2>err.txt
grep -q "3 labelled image(s) are not in the split that the run keeps" err.txt || fail "labels are left out without a word: $(cat err.txt)"
grep -q "^6 labels of 2 classes learnt" out.txt && [ "$(grep -c ',train,' k/images.csv)" = 6 ] || fail "--limit of finetune: $(cat out.txt)"
for c in a b; do noise again/$c 1 12; done
"$EBCLR" finetune kept --data again --out g --epochs 1 --threads 2 >out.txt 2>err.txt
grep -q "^22 labels of 2 classes learnt, 2 held out" out.txt || fail "other pictures of the same names: $(cat out.txt)"

# What every run can do.
"$EBCLR" embed tuned --out f.npy >/dev/null 2>&1 || fail "embed"
"$EBCLR" energy tuned --out e.csv >out.txt 2>/dev/null || fail "energy"
grep -q 'logits of its classes' out.txt && ! grep -q 'energies are against' out.txt || fail "energies of a classifier: $(cat out.txt)"
"$EBCLR" energy tuned --out e.csv --json 2>/dev/null | grep '"references": 0' >/dev/null || fail "references of a classifier"
"$EBCLR" export tuned --format onnx --part projection --out tuned.onnx >/dev/null || fail "export of the classifier"
"$EBCLR" index tuned --data photos --out tuned.idx >/dev/null 2>&1 || fail "index"
"$EBCLR" outliers tuned.idx --by energy --top 3 >/dev/null || fail "energies of a classifier"

# A named set with the joint objective: killed and resumed, the same bytes.
JOINT=(finetune run --joint --epochs 8 --set train.batch_size=8 --set buffer.size=64 --set sampler.steps=3 --limit 48 --limit-test 20 "${TUNE[@]}")
"$EBCLR" "${JOINT[@]}" --out whole
grep -q '"gap"' whole/metrics.jsonl || fail "no generative term"
"$EBCLR" "${JOINT[@]}" --out cut &
pid=$!
while [ "$(wc -l 2>/dev/null <cut/metrics.jsonl || echo 0)" -lt 15 ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -KILL $pid 2>/dev/null || fail "the run ended before step 15"
wait $pid 2>/dev/null || true
expect_error 2 "not trained to its end" "$EBCLR" classify cut --data photos --out x.csv
"$EBCLR" finetune --resume cut --quiet --threads 2
[ "$(final_weights cut)" = "$(final_weights whole)" ] || fail "resumed after SIGKILL, other weights"
cmp -s whole/classes.json cut/classes.json || fail "another verdict after resuming"

"$EBCLR" eval knn whole >/dev/null 2>&1 || fail "eval of a tuned run"

# Stopped, it says how to go on; what is no fine-tuning is not continued as one.
"$EBCLR" "${JOINT[@]}" --out soft 2>soft.txt &
pid=$!
while [ "$(wc -l 2>/dev/null <soft/metrics.jsonl || echo 0)" -lt 10 ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -INT $pid 2>/dev/null || fail "the run ended before step 10"
wait $pid || true
grep -q "ebclr finetune --resume soft" soft.txt || fail "no word on how to go on: $(cat soft.txt)"
expect_error 2 "ebclr train --resume run" "$EBCLR" finetune --resume run

expect_error 2 "knows no classes" "$EBCLR" classify run --data photos --out x.csv
expect_error 2 "already holds a run" "$EBCLR" finetune run --labels few.csv --data photos --out tuned
expect_error 2 "no such run folder" "$EBCLR" finetune nowhere --labels few.csv --data photos --out x
expect_error 2 "--resume takes everything" "$EBCLR" finetune run --resume tuned
expect_error 2 "cannot change optimizer.lr" "$EBCLR" finetune --resume tuned --set optimizer.lr=1
mkdir flat && cp photos/round/3.png photos/other/1.png photos/other/2.png flat
expect_error 2 "no image has a label" "$EBCLR" finetune run --data flat --out x
echo '1.png,a' >one.csv
expect_error 2 "two are the least" "$EBCLR" finetune run --data flat --labels one.csv --out x --set data.test_fraction=0 --set train.batch_size=1
[ ! -e x ] || fail "a refused fine-tuning left a folder"
echo "finetune: all as it should be"
