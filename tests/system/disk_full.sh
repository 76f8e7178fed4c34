# A full disk ends training with a clear line; the checkpoint before it is intact and goes on elsewhere.
source "$(dirname "$0")/lib.sh" "$1"
mkdir small
if ! mount -t tmpfs -o size=6m tmpfs small 2>/dev/null; then
  echo "disk_full: skipped, a small file system cannot be mounted here"
  exit 77
fi
trap 'umount "$WORK/small"; rm -rf "$WORK"' EXIT

# Chains of 200 x 12 kB make a checkpoint of about 4.6 MB with the weights' moments: the first fits, a second does not.
code=0
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 3 --out small/run 2>err.txt || code=$?
[ "$code" = 1 ] || fail "exit code $code with a full disk: $(cat err.txt)"
grep -q "disk is full" err.txt || fail "not said plainly: $(cat err.txt)"
ls small/run/checkpoints | grep -q '^step-.*safetensors$' || fail "the first checkpoint is gone"
ls -A small/run/checkpoints | grep -q 'tmp$' && fail "half a file was left"

# The run goes on from it where there is room, to the same end.
cp -r small/run roomy
"$EBCLR" train --resume roomy --quiet --threads 2
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 3 --out whole
[ "$(final_weights roomy)" = "$(final_weights whole)" ] || fail "other weights after a full disk"
echo "disk_full: ended clearly, nothing lost"
