# A report as its reader meets it: made by the program, opened in Chromium. Skipped where there is none.
here=$(dirname "$(realpath "$0")")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v node >/dev/null; then
  echo "no Chromium or no node here; tools/install-deps --browser installs them"
  exit 77
fi
source "$here/../system/lib.sh" "$1"

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 2 --set log.samples_every=1 --set monitor.knn_every=1 \
  --set monitor.train=40 --set monitor.test=20 --out ebclr
"$EBCLR" train "${SMALL[@]}" --epochs 2 --set method.name=simclr --out simclr
"$EBCLR" eval curve ebclr --judge knn --limit 40 --limit-test 40 --k 5 >/dev/null
# A name that a careless page would take for markup.
mv simclr 'a<b>"&'
"$EBCLR" report ebclr 'a<b>"&' --eval-train 40 --eval-test 60 --map-images 40 --out two.html >/dev/null
[ "$(stat -c %s two.html)" -lt 3000000 ] || fail "$(stat -c %s two.html) bytes"
node "$here/browser.mjs" "$browser" two.html --want h1 --want "nav a" --want "table td" --want ".chart .line" \
  --want ".chart .legend" --want ".picture img" --want ".matrix td.hit" --want ".map .dots" --want "details code" ||
  fail "see above"

# Without labels the map is made of the images.
mkdir flat && for i in $(seq 12); do "$EBCLR" data show shapes --count 1 --seed "$i" --out flat/$i.png >/dev/null; done
"$EBCLR" train --quiet --data flat --image-size 32 --set encoder.width=8 --set train.batch_size=4 --set sampler.steps=1 \
  --epochs 1 --out plain
"$EBCLR" report plain --out plain.html >/dev/null
node "$here/browser.mjs" "$browser" plain.html --want ".map .dots" --want-script ".map .tiled canvas" || fail "see above"

# A page about a run that is no more than begun.
rm -r ebclr/metrics.jsonl ebclr/checkpoints ebclr/summary.json
"$EBCLR" report ebclr --out damaged.html >/dev/null
node "$here/browser.mjs" "$browser" damaged.html --want ".callout" || fail "see above"
echo "report: looked at in $("$browser" --version)"
