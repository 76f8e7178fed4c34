# Attacks on a user's folder: links, pipes and odd names that a stranger may have put there.
source "$(dirname "$0")/lib.sh" "$1"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 2 --out run

# A link in place of a file that is written is replaced, not followed.
echo precious >precious
ln -s "$PWD/precious" report.html
"$EBCLR" report run --no-eval --out report.html >/dev/null
[ "$(cat precious)" = precious ] || fail "the report was written through a link"

# Folders and logs of a run that lead elsewhere.
mkdir elsewhere
cp -r run linked
rm -r linked/checkpoints && cp -r run/checkpoints kept && ln -s "$PWD/kept" linked/checkpoints
expect_error 1 "is a link" "$EBCLR" train --resume linked --epochs 3 --quiet
cp -r run logged
rm logged/train.log && ln -s "$PWD/precious" logged/train.log
expect_error 1 "link" "$EBCLR" train --resume logged --epochs 3 --quiet
[ "$(cat precious)" = precious ] || fail "the log was written through a link"
cp -r run judged
rm -rf judged/eval && ln -s "$PWD/elsewhere" judged/eval
expect_error 1 "is a link" "$EBCLR" eval curve judged --k 5
[ -z "$(ls elsewhere)" ] || fail "a curve was written through a link"

# Pipes hang nobody.
cp -r run piped
rm piped/metrics.jsonl && mkfifo piped/metrics.jsonl
code=0
timeout 60 "$EBCLR" report piped --no-eval --out piped.html >/dev/null 2>err.txt || code=$?
[ "$code" != 124 ] || fail "report hangs at a pipe"
code=0
timeout 60 "$EBCLR" train --resume piped --epochs 3 --quiet 2>err.txt || code=$?
[ "$code" != 124 ] || fail "resume hangs at a pipe"
[ "$code" = 2 ] && grep -q "pipe" err.txt || fail "a pipe as metrics.jsonl: $code, $(cat err.txt)"
# Nesting that would use up the stack.
cp -r run deep
{ printf '{"finished":'; printf '[%.0s' {1..200000}; printf ']%.0s' {1..200000}; printf '}'; } >deep/summary.json
"$EBCLR" report deep --no-eval --out deep.html >deep.txt 2>&1 || fail "a nested summary ends a report: $(tail -n 1 deep.txt)"
mkfifo config.yaml
expect_error 2 "config.yaml" timeout 60 "$EBCLR" train --config config.yaml
mkfifo p.idx model.ts
expect_error 2 "no such index" timeout 60 "$EBCLR" duplicates p.idx
expect_error 2 "is a pipe" timeout 60 "$EBCLR" fid run --inception model.ts

# A configuration that was cut, one that means itself.
cp -r run cut
head -n 40 run/config.yaml >cut/config.yaml
expect_error 2 "not whole" "$EBCLR" train --resume cut
echo 'method: &a {x: *a}' >self.yaml
expect_error 2 "aliases" "$EBCLR" train --config self.yaml

# Data named like YAML words, or in Latin-1, trains and resumes.
for name in null ' lead' '- x' '~' 'a: b' $'caf\xe9'; do
  rm -rf odd && mkdir -p -- "./$name"
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    [ -e "./$name/$i.ppm" ] || { printf 'P6\n16 16\n255\n'; head -c 768 /dev/urandom; } >"./$name/$i.ppm"
  done
  "$EBCLR" train --data "$name" --image-size 16 --epochs 1 --quiet --threads 1 --out odd --set encoder.width=8 \
    --set train.batch_size=4 --set buffer.size=8 --set sampler.steps=1 --set head.out=8
  "$EBCLR" train --resume odd --epochs 2 --quiet --threads 1 || fail "data called '$name' cannot be resumed"
done
"$EBCLR" config show --data $'caf\xe9' --json | grep '"data.source"' >/dev/null || fail "names in Latin-1 as JSON"

# An --out that is taken is refused before any image is read; a failed run leaves nothing.
expect_error 2 "already holds a run" "$EBCLR" train --data no-such-folder --out run
expect_error 2 "fewer than train.batch_size" "$EBCLR" train "${SMALL[@]}" --set train.batch_size=64 --out none
[ ! -e none ] || fail "a run that could not begin left a folder"
expect_error 2 "none.csv: no such folder or CSV" "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --probe none.csv --out none
[ ! -e none ] || fail "a probe that is not there left a folder"
# A folder that was never a run: what to do instead.
mkdir early
expect_error 2 "begin with --out early" "$EBCLR" train --resume early
expect_error 2 "epochs behind it" "$EBCLR" train --resume run --epochs 1
echo "hostile: nobody in"
