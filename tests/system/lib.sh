# Shared by the system tests: $1 is the program; every test works in a folder of its own. $ROOT is the source tree.
set -euo pipefail
EBCLR=$(realpath "$1")
ROOT=$(realpath "$(dirname "$0")/../..")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"
export EBCLR_DATA=$WORK/data

# A training of seconds: 48 images, 6 steps an epoch.
SMALL=(--data shapes --limit 48 --quiet --threads 2
  --set encoder.width=8 --set head.out=16 --set train.batch_size=8 --set log.every=1)
SMALL_EBCLR=("${SMALL[@]}" --set buffer.size=200 --set sampler.steps=3)

fail() { echo "FAILED: $*"; exit 1; }

# final_weights RUN: a digest of the newest checkpoint: all bytes of its files.
final_weights() {
  local newest
  newest=$(ls "$1"/checkpoints/step-*.safetensors | sort | tail -n 1)
  local buffer=${newest/step-/buffer-}
  { cat "$newest" && { [ ! -e "$buffer" ] || cat "$buffer"; }; } | sha256sum | cut -d' ' -f1
}

# expect_error CODE FRAGMENT COMMAND...: one line on stderr that holds the fragment, and that exit code.
expect_error() {
  local want=$1 fragment=$2 code=0
  shift 2
  "$@" >out.txt 2>err.txt || code=$?
  [ "$code" = "$want" ] || fail "exit code $code instead of $want: $* ($(cat err.txt))"
  grep -qF -- "$fragment" err.txt || fail "'$(cat err.txt)' lacks '$fragment': $*"
  [ "$(grep -c '^ebclr: ' err.txt)" = 1 ] || fail "not one line of error: $(cat err.txt)"
}
