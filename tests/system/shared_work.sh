#!/usr/bin/env bash
# embed, eval and energy with their rows spread over ranks: the same files and words as of one process.
source "$(dirname "$0")/lib.sh"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out run >/dev/null 2>&1 || fail "no run to judge"

# ranks N COMMAND...: as N ranks, started by the environment alone; output of rank R in rank.R.out and .err.
port=$((20000 + $$ % 10000))
ranks() {
  local world=$1 rank pids=() code=0
  shift
  port=$((port + 1))
  rm -f rank.*
  for rank in $(seq 0 $((world - 1))); do
    RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      "$EBCLR" "$@" >rank.$rank.out 2>rank.$rank.err &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
  return $code
}
silent() {
  for rank in "$@"; do
    [ ! -s rank.$rank.out ] && [ ! -s rank.$rank.err ] || fail "rank $rank spoke: $(cat rank.$rank.out rank.$rank.err)"
  done
}

# 700 images are three batches: with two ranks one of them has two, with three the last is short.
images=(--data shapes --limit 700)
"$EBCLR" embed run "${images[@]}" --split train --threads 1 --csv --out one/f.npy >one.txt 2>&1 || fail "$(cat one.txt)"
for world in 2 3; do
  if ! ranks $world embed run "${images[@]}" --split train --threads 1 --csv --out many/f.npy; then
    grep -q 'this build has no Gloo' rank.*.err && { echo "SKIPPED: built without Gloo"; exit 77; }
    fail "embed: $(cat rank.*.err)"
  fi
  silent $(seq 1 $((world - 1)))
  grep -q "$world ranks" rank.0.err || fail "the ranks are not named: $(cat rank.0.err)"
  diff <(sed 's/one/many/g' one.txt) rank.0.out || fail "other words"
  for file in one/*; do cmp "$file" "many/${file#one/}" || fail "$file differs on $world ranks"; done
done

"$EBCLR" energy run "${images[@]}" --threads 1 --out one.csv --json >/dev/null
ranks 2 energy run "${images[@]}" --threads 1 --out two.csv --json || fail "energy: $(cat rank.*.err)"
silent 1
cmp one.csv two.csv || fail "energies differ"

"$EBCLR" eval knn run "${images[@]}" --threads 1 --json >one.json
ranks 2 eval knn run "${images[@]}" --threads 1 --json || fail "eval: $(cat rank.*.err)"
silent 1
cmp one.json rank.0.out || fail "eval differs"

# Ranks that would do different things are refused, and all of them end.
port=$((port + 1))
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
RANK=1 "$EBCLR" embed run --data shapes --limit 600 --out no.npy >/dev/null 2>b.err &
other=$!
expect_error 2 'rank 1 has another run or set of images' env RANK=0 "$EBCLR" embed run --data shapes --limit 700 --out no.npy
! wait $other || fail "rank 1 went on"
[ ! -e no.npy ] || fail "something was written"
echo "shared work: ok"
