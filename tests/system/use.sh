# What was learnt, in use: export, index, search, copies, strangers; and what goes wrong with them.
source "$(dirname "$0")/lib.sh" "$1"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out run
"$EBCLR" train "${SMALL[@]}" --set method.name=simclr --epochs 1 --out other

# Exports: each is compared with the network before it gets its name.
for format in onnx torchscript safetensors state_dict; do
  "$EBCLR" export run --format $format --out model.$format >export.txt
  grep -q 'compared on 64 images' export.txt || fail "export $format"
  [ "$(grep -c '^    ' export.txt)" = 3 ] || fail "export $format does not say how to use it"
done
"$EBCLR" export run --format onnx --part energy --preprocess --out energy.onnx --json | grep '"largest_difference"' >/dev/null || fail "export energy"
expect_error 2 "no computation" "$EBCLR" export run --format safetensors --preprocess --out x
expect_error 2 "learns no energy" "$EBCLR" export other --part energy --out x
expect_error 2 "no such run folder" "$EBCLR" export nowhere --out x
[ ! -e x ] || fail "a refused export left a file"

# An index of 24 drawn images, a copy, and a text that claims to be an image.
mkdir photos
for i in $(seq 10 33); do "$EBCLR" data show shapes --count 1 --seed "$i" --out photos/$i.png >/dev/null; done
cp photos/10.png photos/copy.png
echo "no image" >photos/bad.png
"$EBCLR" index run --data photos --out photos.idx >out.txt 2>err.txt
grep -q '25 images (0 kept, 25 added' out.txt || fail "index: $(cat out.txt)"
grep -q 'bad.png' err.txt || fail "the unreadable file is not named"
"$EBCLR" index run --data photos --out photos.idx 2>/dev/null | grep '25 kept, 0 added' >/dev/null || fail "incremental"
rm photos/33.png
"$EBCLR" data show shapes --count 1 --seed 50 --out photos/50.png >/dev/null
"$EBCLR" index run --data photos --out photos.idx 2>/dev/null | grep '24 kept, 1 added, 0 of them changed, 1 removed' >/dev/null || fail "renewal"

"$EBCLR" index run --data photos --out photos.idx --json 2>/dev/null >index.json
grep -q '"file": "bad.png"' index.json && grep -q '"interrupted": false' index.json && grep -q '"not_looked_at": 0' index.json || fail "index --json: $(cat index.json)"
! grep -q '\[image\]' index.json || fail "a component in a reason: $(cat index.json)"
"$EBCLR" index run --data photos --out photos.idx --references 10 2>err.txt >/dev/null
grep -q -- '--references 10 changes nothing' err.txt || fail "references that are not taken: $(cat err.txt)"
"$EBCLR" index run --data photos --out photos.idx 2>err.txt >/dev/null
! grep -q 'changes nothing' err.txt || fail "references that nobody asked for"

"$EBCLR" search photos.idx photos/10.png --top 3 --sheet hits.png >hits.txt
[ "$(sed -n '1,2p' hits.txt | grep -cE '^1.0000  (10|copy).png')" = 2 ] || fail "search: $(cat hits.txt)"
[ -s hits.png ] || fail "no sheet"
"$EBCLR" search photos.idx photos/10.png photos/11.png --not photos/12.png --json | grep '"similarity"' >/dev/null || fail "search --json"
rm photos/copy.png
"$EBCLR" search photos.idx photos/10.png --top 3 >hits.txt 2>err.txt
grep -q 'copy.png is gone' err.txt || fail "a vanished file is not named"

"$EBCLR" duplicates photos.idx --out dup.csv --page dup.html >dup.txt 2>/dev/null
grep -q 'nothing was deleted' dup.txt && grep -q ',10.png' dup.csv && grep -q ',copy.png' dup.csv || fail "duplicates"
grep -q '<html' dup.html || fail "no page of copies"
for by in energy neighbours mahalanobis combined; do
  "$EBCLR" outliers photos.idx --by $by --top 5 --out strange.csv --page strange.html --sheet s.png >out.txt 2>/dev/null
  [ "$(grep -c . strange.csv)" = 26 ] || fail "outliers $by"
done

# A method without a density has no energies, and nothing is ranked by them.
"$EBCLR" index other --data photos --out other.idx >out.txt 2>err.txt
! grep -q 'energies' err.txt || fail "energies are missed: $(cat err.txt)"
"$EBCLR" outliers other.idx --top 3 >out.txt 2>/dev/null
! grep -q 'by energy' out.txt || fail "strangers by an energy that is none: $(cat out.txt)"
expect_error 2 "simclr learns no density" "$EBCLR" outliers other.idx --by energy

# A run whose images have moved to the folder that is indexed; an index that gets its energies when they are back.
mkdir own && cp photos/1?.png photos/2?.png own/
"$EBCLR" train --data own --quiet --threads 2 --set encoder.width=8 --set head.out=16 --set train.batch_size=8 \
  --set buffer.size=200 --set sampler.steps=3 --epochs 1 --out learnt 2>/dev/null
mv own moved
"$EBCLR" index learnt --data moved --out moved.idx 2>err.txt >/dev/null
! grep -q 'no energies' err.txt || fail "moved images: $(cat err.txt)"
"$EBCLR" outliers moved.idx --by energy >/dev/null || fail "an index of moved images has no energies"
mkdir few && cp photos/10.png photos/11.png photos/12.png few/
"$EBCLR" index learnt --data few --out few.idx 2>err.txt >/dev/null
grep -q 'note: no energies: the images that .* learnt from are not in .*own any more' err.txt || fail "why no energies: $(cat err.txt)"
expect_error 2 "ebclr index" "$EBCLR" outliers few.idx --by energy
mv moved own
"$EBCLR" index learnt --data few --out few.idx 2>err.txt >/dev/null
grep -q '3 image(s) that had no energies have them now' err.txt || fail "energies do not come back: $(cat err.txt)"
"$EBCLR" outliers few.idx --by energy >/dev/null || fail "energies did not come back"

# A folder whose name is no text is known again.
latin=$'caf\xe9'
cp -r few "$latin"
"$EBCLR" index run --data "$latin" --out latin.idx >/dev/null 2>&1
"$EBCLR" index run --data "$latin" --out latin.idx 2>err.txt | grep '3 kept, 0 added' >/dev/null || fail "a folder that is not UTF-8: $(cat err.txt)"
"$EBCLR" search latin.idx few/10.png >/dev/null 2>err.txt
! grep -q 'gone' err.txt || fail "its images are gone: $(cat err.txt)"

expect_error 2 "made by another encoder" "$EBCLR" index other --data photos --out photos.idx
expect_error 2 "has no checkpoint that is it" "$EBCLR" search photos.idx photos/10.png --run other
expect_error 2 "--run RUN" bash -c "mv run elsewhere && '$EBCLR' search photos.idx photos/10.png"
"$EBCLR" search photos.idx photos/10.png --run elsewhere >/dev/null 2>&1 || fail "search with --run"
expect_error 2 "cannot be read" "$EBCLR" search photos.idx photos/bad.png --run elsewhere
expect_error 2 "no such index" "$EBCLR" duplicates none.idx
mkfifo pipe.idx
for command in duplicates outliers browse; do expect_error 2 "is a pipe" timeout 60 "$EBCLR" $command pipe.idx; done
expect_error 2 "is a pipe" timeout 60 "$EBCLR" index elsewhere --data photos --out pipe.idx
expect_error 2 "is a pipe" timeout 60 "$EBCLR" fid elsewhere --inception pipe.idx
head -c 5000 photos.idx >half.idx
expect_error 2 "damaged" "$EBCLR" duplicates half.idx
cp photos.idx bad.idx
printf '\x55' | dd of=bad.idx bs=1 seek=200 conv=notrunc 2>/dev/null
expect_error 2 "damaged" "$EBCLR" outliers bad.idx --by mahalanobis

# Names do nothing to a terminal; folders above an output are made.
mkdir odd && cp photos/10.png $'odd/a\e[31m.png' && cp photos/10.png odd/b.png && cp photos/11.png odd/d.png
"$EBCLR" index elsewhere --data odd --out new/deep/odd.idx >/dev/null 2>&1 && [ -s new/deep/odd.idx ] || fail "index in a new folder"
"$EBCLR" search new/deep/odd.idx photos/10.png --run elsewhere >names.txt
"$EBCLR" duplicates new/deep/odd.idx --out new/lists/d.csv --page new/pages/d.html >>names.txt
"$EBCLR" outliers new/deep/odd.idx --by energy --out new/strange/o.csv --page new/stranger/o.html >>names.txt
[ -s new/lists/d.csv ] && [ -s new/pages/d.html ] && [ -s new/strange/o.csv ] && [ -s new/stranger/o.html ] || fail "outputs in new folders"
[ "$(grep -cF 'a\x1b[31m.png' names.txt)" = 3 ] && ! grep -q $'\e' names.txt || fail "names on the terminal: $(cat -v names.txt)"
echo "no image" >$'odd/c\e[31m.png'
"$EBCLR" index elsewhere --data odd --out new/deep/odd.idx 2>err.txt >/dev/null
grep -q 'left out' err.txt && ! grep -q $'\e' err.txt || fail "names of files left out: $(cat -v err.txt)"
: >file
expect_error 1 "cannot be written" "$EBCLR" duplicates none.idx --out file/d.csv
expect_error 1 "cannot be written" "$EBCLR" outliers none.idx --page file/o.html
expect_error 1 "cannot be written" "$EBCLR" export elsewhere --out file/x.onnx
echo "use: all as it should be"
