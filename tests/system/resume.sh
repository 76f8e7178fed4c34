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

# SIGINT, SIGTERM and a closed terminal save, say how to go on, and leave with 130.
for signal in INT TERM HUP; do
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

# Whoever reads the messages may go, as a pager or `tee` after Ctrl-C: the training goes on, also where SIGPIPE is
# ignored (systemd), and saves when it is asked to.
loud=()
for word in "${SMALL_EBCLR[@]}"; do [ "$word" = --quiet ] || loud+=("$word"); done
exec 3> >(exit 0)
sleep 0.3
for pipe in default ignore; do
  rm -rf unread
  code=0
  env --$pipe-signal=PIPE "$EBCLR" train "${loud[@]}" --epochs 15 --out unread >out.txt 2>&3 || code=$?
  [ "$code" = 0 ] || fail "messages that nobody reads: exit code $code (SIGPIPE: $pipe)"
  [ "$(final_weights unread)" = "$want" ] || fail "messages that nobody reads: other weights"
  rm -rf unread
  env --$pipe-signal=PIPE "$EBCLR" train "${loud[@]}" --epochs 15 --out unread >out.txt 2>&3 &
  pid=$!
  while [ "$(steps_of unread)" -lt 20 ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
  kill -INT $pid
  code=0
  wait $pid || code=$?
  [ "$code" = 130 ] || fail "SIGINT when nobody reads: exit code $code (SIGPIPE: $pipe)"
  grep -q "everything is saved" unread/train.log || fail "SIGINT when nobody reads: $(tail -n 1 unread/train.log)"
done
exec 3>&-
# The shell and the system both tell of a closed terminal; under nohup it is no matter.
rm -rf closed
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 15 --out closed 2>closed.txt &
pid=$!
while [ "$(steps_of closed)" -lt 20 ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
for i in 1 2 3; do kill -HUP $pid 2>/dev/null || true; done
code=0
wait $pid || code=$?
[ "$code" = 130 ] && grep -q "everything is saved" closed/train.log || fail "several SIGHUPs: exit code $code"
rm -rf closed
env --ignore-signal=HUP "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 15 --out closed &
pid=$!
while [ "$(steps_of closed)" -lt 20 ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -HUP $pid
wait $pid || fail "SIGHUP under nohup ended it: exit code $?"
[ "$(final_weights closed)" = "$want" ] || fail "SIGHUP under nohup: other weights"

# A finished run resumed is still the same run.
"$EBCLR" train --resume cut --quiet --threads 2
[ "$(final_weights cut)" = "$want" ] || fail "resuming a finished run changed it"
echo "resume: identical after three SIGKILLs, SIGINT, SIGTERM and SIGHUP, and without a reader"
