# Killed at any moment and resumed, a run ends with the same bytes as one that was never interrupted.
source "$(dirname "$0")/lib.sh" "$1"

train() { "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 15 --out "$1"; }

train whole
want=$(final_weights whole)
[ "$(wc -l <whole/metrics.jsonl)" = 90 ] || fail "metrics.jsonl of the whole run"

steps_of() { wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0; }

# SIGKILL after about 5, 30 and 60 steps (in three different states of checkpoint writing), on one run.
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 15 --out cut &
for at in 5 30 60; do
  pid=$!
  while [ "$(steps_of cut)" -lt "$at" ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
  kill -KILL $pid 2>/dev/null || fail "the run ended before step $at"
  wait $pid 2>/dev/null || true
  if [ "$at" != 60 ]; then
    "$EBCLR" train --resume cut --quiet --threads 2 &
  fi
done
"$EBCLR" train --resume cut --quiet --threads 2
[ "$(final_weights cut)" = "$want" ] || fail "resumed after SIGKILL, other weights"
[ "$(wc -l <cut/metrics.jsonl)" = 90 ] || fail "metrics.jsonl has $(wc -l <cut/metrics.jsonl) lines after resuming"

# SIGINT and SIGTERM save, say how to go on, and leave with 130.
for signal in INT TERM; do
  rm -rf soft
  # A shell starts background commands with SIGINT ignored; the program sets its own handler.
  "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 15 --out soft 2>soft.txt &
  pid=$!
  while [ "$(steps_of soft)" -lt 20 ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
  kill -$signal $pid
  code=0
  wait $pid || code=$?
  [ "$code" = 130 ] || fail "exit code $code after SIG$signal"
  grep -q "ebclr train --resume soft" soft.txt || fail "no word on how to resume: $(cat soft.txt)"
  "$EBCLR" train --resume soft --quiet --threads 2
  [ "$(final_weights soft)" = "$want" ] || fail "resumed after SIG$signal, other weights"
done

# A finished run resumed is still the same run.
"$EBCLR" train --resume cut --quiet --threads 2
[ "$(final_weights cut)" = "$want" ] || fail "resuming a finished run changed it"
echo "resume: identical after three SIGKILLs, SIGINT and SIGTERM"
