#!/usr/bin/env bash
# Two hosts, each a network namespace, and a cable (veth) between them:
#   tests/soak/namespaces.sh EBCLR            a rank behind a pulled cable: both end and name it, and resume
#   tests/soak/namespaces.sh EBCLR speed [WIDTH] [BATCH]   training at full speed, 1 Gbit/s and 100 Mbit/s against the cost model
# Needs root and iproute2; skipped (77) where namespaces are not permitted. Touches nothing outside its own namespaces.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
EBCLR=$(realpath "$1")
what=${2:-cable}
A=eb$$-0 B=eb$$-1
for tool in ip tc awk; do command -v $tool >/dev/null || { echo "SKIPPED: no $tool"; exit 77; }; done
ip netns add $A 2>/dev/null || { echo "SKIPPED: network namespaces are not permitted here"; exit 77; }
WORK=$(mktemp -d)
trap 'ip netns del $A 2>/dev/null || true; ip netns del $B 2>/dev/null || true; rm -rf "$WORK"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
cd "$WORK"
export EBCLR_DATA=$WORK/data

ip netns add $B
ip -n $A link add cable type veth peer name cable netns $B
ip -n $A address add 10.77.0.1/24 dev cable
ip -n $B address add 10.77.0.2/24 dev cable
for ns in $A $B; do
  ip -n $ns link set lo up
  ip -n $ns link set cable up
done

# limit RATE: both directions of the cable; "none" takes the limit away.
limit() {
  for ns in $A $B; do
    ip netns exec $ns tc qdisc del dev cable root 2>/dev/null || true
    [ "$1" = none ] || ip netns exec $ns tc qdisc add dev cable root tbf rate "$1" burst 256kb latency 100ms
  done
}

# rank R PORT COMMAND...: the program as one of two ranks, in its namespace.
rank() {
  local r=$1 port=$2
  shift 2
  timeout -k 2 120 ip netns exec eb$$-$r env RANK=$r WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=$port "$EBCLR" "$@" >rank$r.out 2>&1
}
SMALL=(--data shapes --limit 64 --quiet --threads 1 --set encoder.width=8 --set head.out=16 --set train.batch_size=8
  --set buffer.size=200 --set sampler.steps=3 --set log.every=1)

pull_the_cable() {
  local code0=0 code1=0 start
  rank 0 29500 train "${SMALL[@]}" --epochs 2 --set checkpoint.minutes=0.001 --out whole & p0=$!
  rank 1 29500 train "${SMALL[@]}" --epochs 2 --set checkpoint.minutes=0.001 --out whole || fail "rank 1: $(cat rank1.out)"
  wait $p0 || fail "rank 0: $(cat rank0.out)"

  rank 0 29501 train "${SMALL[@]}" --epochs 2 --set checkpoint.minutes=0.001 --out run & p0=$!
  rank 1 29501 train "${SMALL[@]}" --epochs 2 --set checkpoint.minutes=0.001 --out run & p1=$!
  for _ in $(seq 600); do
    [ "$(grep -c '"step"' run/metrics.jsonl 2>/dev/null || true)" -ge 3 ] 2>/dev/null && break
    sleep 0.05
  done
  ip -n $B link set cable down
  start=$SECONDS
  wait $p0 || code0=$?
  wait $p1 || code1=$?
  echo "cable pulled: the ranks ended after $((SECONDS - start)) s with $code0 and $code1:"
  grep -h '^ebclr:' rank0.out rank1.out || true
  [ $code0 = 1 ] && [ $code1 = 1 ] || fail "exit codes $code0 and $code1: $(cat rank0.out rank1.out)"
  [ $((SECONDS - start)) -le 30 ] || fail "it took $((SECONDS - start)) s"
  grep -q 'rank 1' rank0.out || fail "rank 0 does not name rank 1: $(cat rank0.out)"
  grep -q 'rank 0' rank1.out || fail "rank 1 does not name rank 0: $(cat rank1.out)"

  ip -n $B link set cable up
  rank 0 29502 train --resume run --quiet --threads 1 & p0=$!
  rank 1 29502 train --resume run --quiet --threads 1 || fail "rank 1 after the repair: $(cat rank1.out)"
  wait $p0 || fail "rank 0 after the repair: $(cat rank0.out)"
  for f in whole run; do ls $f/checkpoints | grep -v tmp | tail -n 1; done
  [ "$(last_weights whole)" = "$(last_weights run)" ] || fail "the run that went on ends elsewhere"
  echo "and went on to the same weights"
}
last_weights() { sha256sum "$(ls "$1"/checkpoints/step-*.safetensors | sort | tail -n 1)" | cut -d' ' -f1; }

field() { awk -v key="\"$2\":" '$1 == key {gsub(",", "", $2); print $2; exit}' "$1"; }
sent() { ip netns exec $A cat /sys/class/net/cable/statistics/tx_bytes; }

# One measurement over the cable: seconds per step, of it in the exchange, exchanges, bytes.
measure() {
  limit "$1"
  local before
  before=$(sent)
  "$EBCLR" bench ranks --width "$width" --batch "$batch" --repeats 2 --timed 2 --json \
    --through "ip netns exec eb$$-{}" --master 10.77.0.1 >"$1.json" 2>err.txt || fail "bench at $1: $(cat err.txt)"
  # All steps but the first are timed; start-up is a few kilobytes.
  echo $((($(sent) - before) / (2 * 3))) >"$1.wire"
}

# The model: what a rank computes, and on top of it each byte at the cable's rate and each exchange a round trip.
# A rank sends 2 (R - 1) / R of what it hands over (a ring); 1448 of 1514 bytes of a frame are ours.
speed() {
  width=${1:-16} batch=${2:-64}
  local rtt rate
  rtt=$(ip netns exec $A ping -c 5 -i 0.2 -q 10.77.0.2 2>/dev/null | awk -F/ '/^rtt/ {print $5 / 1000}' || true)
  rtt=${rtt:-0.0001}
  measure none
  for rate in 1gbit 100mbit; do measure $rate; done
  limit none
  echo "width $width, batch $batch, round trip ${rtt} s"
  for rate in none 1gbit 100mbit; do
    awk -v rate=$rate -v rtt="$rtt" -v base_step="$(field none.json ranks_seconds)" -v base_exchange="$(field none.json exchange_seconds_per_step)" \
      -v bytes="$(field none.json bytes_per_step)" -v n="$(field none.json exchanges_per_step)" \
      -v step="$(field $rate.json ranks_seconds)" -v threads="$(field none.json threads_seconds)" \
      -v wire="$(cat $rate.wire)" 'BEGIN {
        bits = rate == "1gbit" ? 1e9 : rate == "100mbit" ? 1e8 : 0
        compute = base_step - base_exchange
        model = bits > 0 ? compute + base_exchange + n * rtt + bytes * 8 / (bits * 1448 / 1514) : base_step
        printf "%-8s %.3f s a step, efficiency %.3f; model %.3f s (%+.1f %%); %.2f MB a step on the wire, %.2f MB by the model\n",
          rate, step, threads / step, model, 100 * (model / step - 1), wire / 1e6, bytes * 1514 / 1448 / 1e6
        exit bits > 0 && (model / step > 1.15 || model / step < 0.85)
      }' || fail "the model is more than 15 % off"
  done
}

case $what in
  cable) pull_the_cable ;;
  speed) speed "${3:-}" "${4:-}" ;;
  *) fail "unknown '$what'" ;;
esac
echo "namespaces: ok"
