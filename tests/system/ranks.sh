# Several processes train one run: started by plain environment variables, torchrun and mpirun; and what happens when one of
# them is killed, hangs, differs, or never comes.
source "$(dirname "$0")/lib.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3 to find ports and compare losses with"; exit 77; }
export EBCLR_JOIN_SECONDS=20 EBCLR_SILENCE_SECONDS=6
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
trap 'kill -KILL ${pids[*]:-} 2>/dev/null || true; rm -rf "$WORK"' EXIT
pids=()

TRAIN=(--data shapes --limit 48 --threads 1 --set encoder.width=8 --set head.out=16 --set train.batch_size=8
  --set log.every=1 --set buffer.size=201 --set sampler.steps=3)

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# rank R OF COMMAND...: one of them in the background; its output in rankR.txt.
rank() {
  local r=$1 world=$2
  shift 2
  RANK=$r WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >"rank$r.txt" 2>&1 &
  pids[r]=$!
}
# ranks N COMMAND...: all of them.
ranks() {
  local world=$1 r
  shift
  port=$(free_port)
  pids=()
  for ((r = 0; r < world; r++)); do rank "$r" "$world" "$@"; done
}
# ended R CODE: rank R ends with that code.
ended() {
  local code=0
  wait "${pids[$1]}" || code=$?
  [ "$code" = "$2" ] || fail "rank $1 left with $code instead of $2: $(cat "rank$1.txt")"
}
all_ended() { for r in "${!pids[@]}"; do ended "$r" "$1"; done; }
says() { grep -qF -- "$2" "rank$1.txt" || fail "rank $1 lacks '$2': $(cat "rank$1.txt")"; }
steps_of() { wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0; }
until_step() { while [ "$(steps_of "$1")" -lt "$2" ] && kill -0 "${pids[0]}" 2>/dev/null; do sleep 0.05; done; }
# The bytes of the newest checkpoint and of all parts of its buffer.
newest() {
  local step
  step=$(ls "$1"/checkpoints/step-*.safetensors | sort | tail -n 1)
  local id=${step##*/step-}
  cat "$step" "$1"/checkpoints/buffer-"${id%.safetensors}"*.safetensors | sha256sum | cut -d' ' -f1
}
losses() { python3 -c 'import json, sys; print(*[json.loads(l)["loss"] for l in open(sys.argv[1])])' "$1/metrics.jsonl"; }

# One process, then two: the same losses; only rank 0 speaks.
"$EBCLR" train "${TRAIN[@]}" --epochs 4 --out one --quiet
ranks 2 "$EBCLR" train "${TRAIN[@]}" --epochs 4 --out two
all_ended 0
says 0 "2 ranks on 1 host"
[ ! -s rank1.txt ] || fail "rank 1 speaks: $(cat rank1.txt)"
python3 - "$(losses one)" "$(losses two)" <<'P' || fail "other losses on two ranks"
import sys
a, b = ([float(x) for x in s.split()] for s in sys.argv[1:])
assert len(a) == len(b) == 24
assert all(abs(x - y) <= 1e-4 * max(1, abs(x)) for x, y in zip(a, b)), list(zip(a, b))
P
[ "$(ls two/checkpoints | grep -c -- '-[12]of2')" -ge 2 ] || fail "no parts of the buffer: $(ls two/checkpoints)"
# What two ranks trained is a run like any other.
"$EBCLR" eval knn two --limit 40 --threads 1 >/dev/null

LONG=("${TRAIN[@]}" --epochs 12 --quiet)
ranks 2 "$EBCLR" train "${LONG[@]}" --out whole
all_ended 0
want=$(newest whole)

# A rank is killed: the other ends by itself, names it, and the run goes on to the same bytes.
ranks 2 "$EBCLR" train "${LONG[@]}" --out killed
until_step killed 20
kill -KILL "${pids[1]}"
ended 0 1
says 0 "rank 1"
says 0 "--resume"
wait "${pids[1]}" 2>/dev/null || true
# A rank hangs.
ranks 2 "$EBCLR" train --resume killed --quiet --threads 1
until_step killed 40
kill -STOP "${pids[1]}"
ended 0 1
says 0 "rank 1 has not been heard of"
kill -KILL "${pids[1]}"
wait "${pids[1]}" 2>/dev/null || true
# SIGTERM to one of them stops all, and everything is saved.
ranks 2 "$EBCLR" train --resume killed --quiet --threads 1
until_step killed 55
kill -TERM "${pids[1]}"
all_ended 130
says 0 "everything is saved"
# A stranger at the port harms nobody.
ranks 2 "$EBCLR" train --resume killed --quiet --threads 1
until_step killed 60
for text in 'GET / HTTP/1.0\r\n\r\n' '\x00\x00\x00\x00\x00\x00\x00\x09' '\xff\xff\xff\xff'; do
  (printf "$text" >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || true
done
all_ended 0
[ "$(newest killed)" = "$want" ] || fail "killed, stopped and interrupted, two ranks end with other bytes"
# The same run goes on alone.
"$EBCLR" train --resume killed --epochs 13 --quiet --threads 1
[ "$(steps_of killed)" = 78 ] || fail "one process did not go on where two had stopped"

# A rank that differs is refused, on every rank, with the difference.
port=$(free_port) pids=()
rank 0 2 "$EBCLR" train "${LONG[@]}" --out differs
rank 1 2 "$EBCLR" train "${LONG[@]}" --out differs --set train.seed=7
all_ended 2
says 0 "rank 1 has another configuration"
says 1 "seed: 7"
[ ! -e differs ] || fail "a refused run left a folder"

# A rank that cannot write its part says so to the others.
limited() { (trap '' XFSZ; ulimit -f 200; exec "$@"); }
port=$(free_port) pids=()
rank 0 2 "$EBCLR" train "${LONG[@]}" --out full
rank 1 2 limited "$EBCLR" train "${LONG[@]}" --out full
all_ended 1
says 0 "rank 1 ended: "
says 1 "File too large"
[ ! -e full ] || fail "a run that could not begin left $(find full)"

# A port in use, a rank that never comes, a master that nobody reaches.
EBCLR_JOIN_SECONDS=4
port=$(free_port) pids=()
python3 -c 'import socket, sys, time; s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); time.sleep(60)' "$port" &
holder=$!
sleep 0.5
rank 0 2 "$EBCLR" train "${LONG[@]}" --out port
ended 0 1
says 0 "choose another MASTER_PORT"
kill $holder
port=$(free_port) pids=()
rank 0 2 "$EBCLR" train "${LONG[@]}" --out port
ended 0 1
says 0 "rank 1 of 2 did not come within 4 s"
port=$(free_port) pids=()
rank 1 2 "$EBCLR" train "${LONG[@]}" --out port
ended 1 1
says 1 "could not reach rank 0"
[ ! -e port ] || fail "a run that did not begin left a folder"
EBCLR_JOIN_SECONDS=20

launched=
if command -v mpirun >/dev/null; then
  mpirun -n 2 --allow-run-as-root --oversubscribe "$EBCLR" train "${LONG[@]}" --out mpi >mpi.txt 2>&1 || fail "mpirun: $(cat mpi.txt)"
  [ "$(newest mpi)" = "$want" ] || fail "mpirun gave other bytes"
  launched=" mpirun"
else
  echo "mpirun is not installed (tools/install-deps --distributed): skipped"
fi
if command -v torchrun >/dev/null && torchrun --help >/dev/null 2>&1; then
  # Killed once: torchrun starts it again, and it goes on by itself. (-r, -t: torchrun 1.13 trips over its own defaults with
  # Python 3.11, as Debian 12 has them.)
  torchrun -r 0:1 -t 0:1 --nproc_per_node 2 --max_restarts 1 --monitor_interval 1 --master_port "$(free_port)" --no_python \
    "$EBCLR" train "${LONG[@]}" --out torch >torch.txt 2>&1 &
  pids=($!)
  until_step torch 20
  kill -0 "${pids[0]}" 2>/dev/null || fail "torchrun ended early: $(cat torch.txt)"
  kill -KILL "$(pgrep -P "${pids[0]}" | tail -n 1)"
  ended_torch=0
  wait "${pids[0]}" || ended_torch=$?
  [ "$ended_torch" = 0 ] || fail "torchrun left with $ended_torch: $(cat torch.txt)"
  grep -q "resumed at" torch/train.log || fail "not resumed after the restart: $(cat torch.txt)"
  [ "$(newest torch)" = "$want" ] || fail "torchrun with a restart gave other bytes"
  launched="$launched torchrun"
else
  echo "torchrun is not installed (tools/install-deps --distributed): skipped"
fi
echo "ranks: same losses; killed, hung, interrupted and met by strangers, the same bytes; started by environment$launched"
