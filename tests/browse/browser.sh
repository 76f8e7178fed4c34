# The page of an index as its reader meets it, with 20,000 images, in Chromium. Skipped where there is none.
here=$(dirname "$(realpath "$0")")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v node >/dev/null; then
  echo "no Chromium or no node here; tools/install-deps --browser installs them"
  exit 77
fi
maker=$(realpath "$2")
source "$here/../system/lib.sh" "$1"
"$maker" big.idx 20000
printf 'path,given,predicted,probability,label_next\nimg000001.png,,cat,0.9,\nimg000002.png,,"a<b>,c",0.8,\n' >classes.csv
"$EBCLR" browse big.idx --port 0 --classes classes.csv --threads 2 >address.txt &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$WORK"' EXIT
for _ in $(seq 600); do grep -q http address.txt && break; sleep 0.2; done
address=$(grep -o 'http[^ ]*' address.txt) || fail "no address within two minutes"
node "$here/browser.mjs" "$browser" "$address" || fail "see above"
kill -INT $server
wait $server || fail "Ctrl-C does not end it cleanly"
expect_error 2 "give --token" "$EBCLR" browse big.idx --host 0.0.0.0 --port 0
expect_error 2 "too short" "$EBCLR" browse big.idx --host 0.0.0.0 --token a --port 0
expect_error 2 "letters" "$EBCLR" browse big.idx --token 'a;b c&d=e#f' --port 0
echo "browse: looked at 20,000 images in $("$browser" --version)"
