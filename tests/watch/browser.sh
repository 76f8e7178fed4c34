# The live page as its reader meets it: of a run that is really training, in Chromium. Skipped where there is none.
here=$(dirname "$(realpath "$0")")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v node >/dev/null; then
  echo "no Chromium or no node here; tools/install-deps --browser installs them"
  exit 77
fi
shots=${2:+$(realpath "$2")}
source "$here/../system/lib.sh" "$1"
started=()
cleanup() {
  for p in "${started[@]}"; do kill -9 "$p" 2>/dev/null || true; done
  rm -rf "$WORK"
}
trap cleanup EXIT

JUDGED=(--set log.samples_every=1 --set monitor.knn_every=1 --set monitor.train=40 --set monitor.test=20 --set guard.collapse=0)
# One that is done, with a name that a careless page would take for markup.
"$EBCLR" train "${SMALL[@]}" --epochs 3 --set method.name=simclr --set 'monitor.knn_every=1' --set monitor.train=40 \
  --set monitor.test=20 --out 'runs/<img src=x onerror=alert(1)>'
# One that crashes.
"$EBCLR" train "${SMALL_EBCLR[@]}" "${JUDGED[@]}" --epochs 100000 --out runs/crashed &
victim=$!
started+=("$victim")
for _ in $(seq 300); do [ -e runs/crashed/samples/epoch-0002.png ] && break; sleep 0.2; done
kill -9 "$victim"
wait "$victim" 2>/dev/null || true
# One that trains meanwhile.
"$EBCLR" train "${SMALL_EBCLR[@]}" "${JUDGED[@]}" --epochs 100000 --set train.seed=1 --out runs/training &
started+=("$!")
"$EBCLR" watch runs >watch.txt &
started+=("$!")
for _ in $(seq 300); do grep -q '^open ' watch.txt && [ -e runs/training/samples/epoch-0002.png ] && break; sleep 0.2; done
address=$(sed -nE 's/^open (http:[^ ]*).*/\1/p' watch.txt)
[ -n "$address" ] || fail "it said: $(cat watch.txt)"
# A run that appears while the page is open.
(
  sleep 12
  mkdir -p runs/later
  cp -r 'runs/<img src=x onerror=alert(1)>/.' runs/later.part
  rmdir runs/later && mv runs/later.part runs/later
) &
node "$here/browser.mjs" "$browser" "$address" ${shots:+--shots "$shots"} || fail "see above"
echo "watch: looked at in $("$browser" --version)"
