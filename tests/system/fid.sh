# How far samples are from real images, as a user asks for it.
source "$(dirname "$0")/lib.sh" "$1"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out run
FEW=(--samples 40 --steps 2 --limit 64 --reference-images 60 --references 16 --threads 1)

# The first call trains a classifier and keeps it, the second finds it and says the same.
"$EBCLR" fid run "${FEW[@]}" --out grid.png >first.txt 2>first.err
[ ! -s first.err ] || fail "said something on stderr without a terminal: $(cat first.err)"
grep -q '^Frechet distance on shapes classifier features (128-d)$' first.txt || fail "no label: $(cat first.txt)"
grep -q 'not an FID' first.txt || fail "taken for an FID: $(cat first.txt)"
grep -q '^40 samples, 2 steps from data ' first.txt || fail "the count is not stated: $(cat first.txt)"
grep -q '^floor: 40 other real views ' first.txt || fail "no floor: $(cat first.txt)"
grep -q '^ceiling: 40 images of uniform noise ' first.txt || fail "no ceiling: $(cat first.txt)"
grep -q 'not more than the 128 dimensions' first.txt || fail "too few samples are not mentioned: $(cat first.txt)"
[ "$(head -c 4 grid.png | od -An -c | tr -d ' ')" = '211PNG' ] || fail "grid.png is no PNG"
[ "$(ls "$EBCLR_DATA"/fid/ | grep -c '^classifier-shapes-.*\.safetensors$')" = 1 ] || fail "the classifier was not kept"
"$EBCLR" fid run "${FEW[@]}" --json >second.json
grep -q '"classifier_cached": true' second.json || fail "the classifier was not found again: $(cat second.json)"
grep -q '"is_fid": false' second.json || fail "--json calls it an FID: $(cat second.json)"
first=$(grep '^40 samples' first.txt | awk '{print $NF}')
second=$(grep '"distance"' second.json | tr -dc '0-9.')
awk -v a="$first" -v b="$second" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (0.01 * a) ^ 2) }' || fail "first $first, then $second"

# A damaged file is replaced, and said to be.
for f in "$EBCLR_DATA"/fid/*; do head -c 5000 "$f" >cut && mv cut "$f"; done
"$EBCLR" fid run "${FEW[@]}" >third.txt
grep -q 'note: .*trained anew' third.txt || fail "nothing said of a damaged classifier: $(cat third.txt)"

# Mistakes.
echo "no network" >net.pt
expect_error 2 "not a TorchScript file" "$EBCLR" fid run "${FEW[@]}" --inception net.pt
expect_error 2 "no such file" "$EBCLR" fid run "${FEW[@]}" --inception nothing.pt
expect_error 2 "no such run folder" "$EBCLR" fid nowhere
expect_error 2 "same shape" "$EBCLR" fid run "${FEW[@]}" --data shapes28-gray
mkdir flat && for i in 1 2 3 4 5 6 7 8; do "$EBCLR" data show shapes --count 1 --out flat/$i.png >/dev/null; done
expect_error 2 "--inception" "$EBCLR" fid run "${FEW[@]}" --data flat

# Ctrl-C ends it at once, with nothing half done.
"$EBCLR" fid run --samples 100000 --limit 64 --references 16 --threads 1 >cut.txt 2>&1 &
pid=$!
# A background command starts with SIGINT ignored: wait until the program has its own handler.
until (( 0x$(awk '/^SigCgt/ { print $2 }' /proc/$pid/status) & 2 )); do sleep 0.1; done
sleep 1
kill -INT $pid
code=0
wait $pid || code=$?
[ "$code" = 130 ] || fail "exit code $code after SIGINT: $(cat cut.txt)"
ls "$EBCLR_DATA"/fid | grep -q 'tmp$' && fail "half a file was left"
echo "fid: labelled, kept, replaced, refused and interrupted as it should be"
