# Mistakes get one clear line and the right exit code.
source "$(dirname "$0")/lib.sh" "$1"

expect_error 2 "did you mean 'method.lambda'" "$EBCLR" train --data shapes --set method.lamda=1
expect_error 2 "expected key=value" "$EBCLR" train --data shapes --set oops
expect_error 2 "a whole number" "$EBCLR" train --data shapes --set encoder.width=wide
expect_error 2 "no such file or shipped configuration" "$EBCLR" train --config nothing.yaml
expect_error 2 "no images" "$EBCLR" train
expect_error 2 "ebclr data get cifar10" "$EBCLR" train --data cifar10
expect_error 2 "no such run folder" "$EBCLR" train --resume nowhere
expect_error 2 "no such run folder" "$EBCLR" sample nowhere
expect_error 2 "no CUDA device" "$EBCLR" train "${SMALL[@]}" --out a --device cuda
expect_error 2 "choose auto, cpu" "$EBCLR" train "${SMALL[@]}" --out a --device tpu
expect_error 2 "ebclr --help" "$EBCLR" trane
expect_error 2 "train.batch_size" "$EBCLR" train "${SMALL[@]}" --out a --set train.batch_size=64
expect_error 2 "need --precision bfloat16" "$EBCLR" bench sampler --energies 64
[ ! -e a ] || fail "a refused run left a folder"
echo "bs: [1, 2" >bad.yaml
expect_error 2 "not valid YAML" "$EBCLR" train --config bad.yaml
mkdir empty
expect_error 2 "empty" "$EBCLR" train --data empty --out b

# A learning rate that cannot work: rolled back, then given up with advice; nothing lost.
expect_error 1 "gave up after 1 roll-backs" "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 2 --out boom \
  --set optimizer.lr=1e18 --set guard.tries=1
grep -q '"event":"rollback"' boom/metrics.jsonl || fail "the roll-back is not in metrics.jsonl"
# The same with a monitor: that it cannot judge what has diverged must not end what the guard would mend. An epoch is
# one step, so that it is asked before the guard sees anything.
code=0
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 3 --out wild --set optimizer.lr=1e3 --set monitor.knn_every=1 \
  --set train.batch_size=48 2>err.txt || code=$?
[ "$code" = 0 ] || { [ "$code" = 1 ] && grep -q "gave up" err.txt; } || fail "diverged with a monitor: $code, $(cat err.txt)"
grep -q "no kNN check" err.txt || fail "it should have diverged: $(cat err.txt)"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out ok
expect_error 2 "already holds a run" "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out ok
expect_error 2 "cannot change method.lambda" "$EBCLR" train --resume ok --set method.lambda=2
expect_error 2 "no checkpoint of epoch 9" "$EBCLR" sample ok --checkpoint 9

# What works: samples, energies, a longer run, JSON.
"$EBCLR" sample ok --count 9 --steps 5 --out grid.png --json | grep '"energy_end"' >/dev/null || fail "sample --json"
[ "$(head -c 4 grid.png | od -An -c | tr -d ' ')" = '211PNG' ] || fail "grid.png is no PNG"
"$EBCLR" sample ok --count 4 --steps 3 --init buffer --out buffer.png >/dev/null
"$EBCLR" sample ok --count 4 --steps 3 --init uniform --out uniform.png >/dev/null
"$EBCLR" energy ok --against shapes --limit 20 --out e.csv | grep AUROC >/dev/null || fail "energy --against"
"$EBCLR" eval strangers ok --limit 20 --scores scores.csv | grep '^mean' >/dev/null || fail "eval strangers"
[ "$(head -1 scores.csv)" = set,image,energy,neighbour,mahalanobis,length ] || fail "scores.csv begins with $(head -1 scores.csv)"
[ "$(grep -c '^noise,' scores.csv)" = 20 ] || fail "scores.csv: $(cut -d, -f1 scores.csv | sort | uniq -c)"
[ -s e.csv ] && [ -s e.png ] || fail "energy wrote no files"
"$EBCLR" train --resume ok --epochs 2 --quiet
grep -q '"epochs": 2' ok/summary.json || fail "a run can be made longer"
grep -q 'epochs: 2' ok/config.yaml || fail "config.yaml does not know that the run was made longer"
"$EBCLR" config show --config quick/ebclr_fmnist --set train.seed=5 | grep 'seed:.*5.*# --set' >/dev/null || fail "config show"
"$EBCLR" config show --json | grep '"method.tau"' >/dev/null || fail "config show --json"

# Judging: the table, features, a map, a curve; and what cannot be judged.
"$EBCLR" eval knn ok --baseline random,pixels --k 5 --json | grep '"accuracy"' >/dev/null || fail "eval knn --json"
"$EBCLR" eval linear ok --probe-epochs 5 | grep 'linear honest' >/dev/null || fail "eval linear"
"$EBCLR" embed ok --out emb.npy >/dev/null
[ "$(head -c 6 emb.npy | tail -c 5)" = NUMPY ] || fail "emb.npy is no NumPy file"
"$EBCLR" map ok --points 40 --perplexity 5 --out map.png >/dev/null
"$EBCLR" plot ok --out curves.png >/dev/null
[ -s map.png ] && [ -s curves.png ] || fail "map or plot wrote nothing"
"$EBCLR" eval curve ok --k 5 >/dev/null
"$EBCLR" compare ok ok | grep 'Relative efficiency' >/dev/null || fail "compare"
"$EBCLR" eval transfer ok --to shapes28-gray --limit 60 --limit-test 20 --k 5 --probe-epochs 5 | grep 'linear' >/dev/null || fail "eval transfer"
expect_error 2 "no such run folder" "$EBCLR" eval knn nowhere
expect_error 2 "checkpoint" "$EBCLR" eval knn ok --checkpoint 77
mkdir -p flat && for i in 1 2 3; do "$EBCLR" data show shapes --count 1 --out flat/$i.png >/dev/null; done
expect_error 2 "label" "$EBCLR" eval knn ok --data flat

# The command whose options are meant, and no suggestion that is far off.
expect_error 2 '`ebclr data stats --help` lists the options' "$EBCLR" data stats shapes --image-size 7
expect_error 2 '`ebclr eval --help` lists the commands' "$EBCLR" eval nosuch
expect_error 2 '`ebclr train --help`' "$EBCLR" train --nosuch
! grep -q 'did you mean' err.txt || fail "a suggestion that nobody meant: $(cat err.txt)"

# Numbers out of range, shortly.
for option in --limit --limit-test --seed; do
  expect_error 2 "$option: -1 is negative" "$EBCLR" train --data shapes $option -1
done
expect_error 2 "--seed: -1 is negative" "$EBCLR" sample ok --seed -1
[ "$(wc -c <err.txt)" -lt 200 ] || fail "a long line: $(cat err.txt)"
expect_error 2 "--k" "$EBCLR" eval knn ok --k 0

# What cannot be written is said before the work: here, before the run is looked for.
: >file
expect_error 1 "file/x.npy: cannot be written: Not a directory" "$EBCLR" embed nowhere --out file/x.npy
expect_error 1 "cannot be written" "$EBCLR" index nowhere --data flat --out file/x.idx
expect_error 1 "cannot be written" "$EBCLR" classify nowhere --data flat --out file/x.csv
expect_error 1 "cannot be written" "$EBCLR" energy nowhere --out file/x.csv
expect_error 1 "cannot be written" "$EBCLR" sample nowhere --npy file/x.npy
expect_error 1 "cannot be written" "$EBCLR" eval strangers nowhere --scores file/x.csv
expect_error 1 "cannot be written" "$EBCLR" report nowhere --out file/x.html
expect_error 1 "cannot be written" "$EBCLR" eval all nowhere --plots file/x
expect_error 2 "is a folder; name a file" "$EBCLR" index nowhere --data flat --out flat
rm -rf ok/eval
expect_error 1 "cannot be written" "$EBCLR" eval curve ok --k 5 --plot file/x.png
[ ! -e ok/eval ] || fail "the curve was made before its picture was found to have no place"
expect_error 1 "cannot be written" "$EBCLR" train --data flat --out file/run
[ ! -s out.txt ] || fail "pictures were looked at before the folder of the run: $(cat out.txt)"
expect_error 2 "budget '5x'" "$EBCLR" train --data flat --budget 5x --out c
[ ! -s out.txt ] || fail "pictures were looked at before the budget: $(cat out.txt)"
expect_error 2 "nosuch.csv: no such folder or CSV" "$EBCLR" train --data flat --probe nosuch.csv --out c
[ ! -s out.txt ] && [ ! -e c ] || fail "pictures were looked at before the probe: $(cat out.txt)"

# Folders above an output are made.
"$EBCLR" energy ok --limit 5 --out new/energy/e.csv >/dev/null 2>&1 && [ -s new/energy/e.csv ] || fail "energy --out in a new folder"
"$EBCLR" sample ok --count 1 --steps 1 --out new/s.png --npy new/samples/s.npy >/dev/null && [ -s new/samples/s.npy ] || fail "sample --npy in a new folder"
"$EBCLR" eval strangers ok --limit 20 --scores new/strangers/s.csv >/dev/null && [ -s new/strangers/s.csv ] || fail "eval strangers --scores in a new folder"

# Pictures that are named one by one: one that cannot be read is left out, and no option is overlooked.
echo "no picture" >bad.png
"$EBCLR" embed ok flat/1.png bad.png --out two.npy --json >two.json || fail "one bad file of two"
grep -q '"images": 1' two.json && grep -q '"file": "bad.png"' two.json && grep -q '"flat/1.png"' two.json || fail "embed: $(cat two.json)"
expect_error 2 "bad.png" "$EBCLR" embed ok bad.png --out two.npy
"$EBCLR" energy ok flat/1.png bad.png --out one.csv >one.txt 2>one.err || fail "$(cat one.err)"
grep -q 'left out: bad.png' one.err || fail "energy does not name what it left out: $(cat one.err)"
grep -q '1 image, energy' one.txt && ! grep -qi nan one.txt || fail "energy of one image: $(cat one.txt)"
for options in "--split test" "--data flat" "--limit 1" "--limit-test 1"; do
  for command in embed energy; do
    expect_error 2 "${options% *} chooses among the images of a set" "$EBCLR" $command ok flat/1.png $options
  done
done
echo "errors: all as they should be"
