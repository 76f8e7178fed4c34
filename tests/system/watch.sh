# The live page's server from outside: what it shows, and what it refuses. How the page looks is tests/watch/browser.sh's
# business.
source "$(dirname "$0")/lib.sh" "$1"
command -v curl >/dev/null || { echo "no curl here"; exit 77; }
started=()
cleanup() {
  for p in "${started[@]}"; do kill -9 "$p" 2>/dev/null || true; done
  rm -rf "$WORK"
}
trap cleanup EXIT
# serve ARGUMENTS...: starts `ebclr watch` and sets address.
serve() {
  "$EBCLR" watch "$@" >watch.txt 2>warn.txt &
  server=$!
  started+=("$server")
  for _ in $(seq 300); do grep -q '^open ' watch.txt && break; sleep 0.1; done
  address=$(sed -nE 's/^open (http:[^ ]*).*/\1/p' watch.txt)
  [ -n "$address" ] || fail "no address: $(cat watch.txt warn.txt)"
}
ask() { curl -sS --max-time 20 "$@"; }
# hear SECONDS: what the event stream says meanwhile.
hear() { curl -s --max-time "$1" -N "${address}events" || true; }
code() { curl -sS --max-time 20 -o /dev/null -w '%{http_code}' "$@"; }
want() { # want CODE CURL-ARGUMENTS...
  local wanted=$1 got
  shift
  got=$(code "$@")
  [ "$got" = "$wanted" ] || fail "$got instead of $wanted: $*"
}

"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 2 --set log.samples_every=1 --out runs/one
"$EBCLR" train "${SMALL[@]}" --epochs 1 --set method.name=byol --out 'runs/<script>two'
echo secret >secret.txt

serve runs
[ "${address#http://127.0.0.1:}" != "$address" ] || fail "listens on $address"
ask "$address" | grep -q '<script src="/page.js"' || fail "no page"
ask -D head.txt -o /dev/null "$address"
for h in "Content-Security-Policy: default-src 'none'; script-src 'self'" 'X-Content-Type-Options: nosniff'; do
  grep -qF "$h" head.txt || fail "no header '$h'"
done
for f in page.js page.css uplot.js uplot.css about; do want 200 "${address}$f"; done

# The first event names all runs; text stays text.
hear 3 >events.txt
grep -q '^data: {"runs":\[' events.txt || fail "events: $(head -c 300 events.txt)"
for part in '"name":"one"' '"state":"finished"' '"name":"<script>two"' '"samples":\[1,2\]' '"method":"byol"'; do
  grep -q -- "$part" events.txt || fail "no $part in $(head -c 2000 events.txt)"
done
ask "${address}series?ask=0.0.0.0,1.0.0.0" >/dev/null # from now on their curves are read
for _ in $(seq 50); do
  hear 2 >/dev/null
  ask "${address}series?ask=0.0.0.0,1.0.0.0" >series.txt
  grep -q '"loss":{"mean":\[[-0-9]' series.txt && break
done
grep -q '"step":\[1,2,3,4,5,6' series.txt || fail "series: $(head -c 300 series.txt)"
ask "${address}detail?runs=0&x=epoch&low=0.2&high=0.5" | grep -q '"loss"' || fail "no detail"
# Folders are numbered in their order: "<script>two" is 0, "one" is 1.
ask "${address}config?runs=1" | grep -q '"train.epochs":"2"' || fail "no configuration"
ask "${address}log?run=1" | grep -q 'ebclr on shapes' || fail "no log"
ask -o picture.png "${address}sample?run=1&epoch=2"
cmp -s picture.png runs/one/samples/epoch-0002.png || fail "another picture"

# Paths do not reach the file system.
for path in ../secret.txt %2e%2e/secret.txt ..%2fsecret.txt runs/one/config.yaml //etc/passwd etc/passwd; do
  want 404 --path-as-is "${address}$path"
done
for query in 'sample?run=1&epoch=../../../secret' 'sample?run=1&epoch=3' 'sample?run=9&epoch=1' 'sample?run=-1&epoch=1' 'log?run=..' \
  'log' 'log?run=99999999999999999999' 'sample?run=1&epoch=1e0'; do
  want 404 "${address}$query"
done
for query in 'series?ask=x' 'series?ask=0.0.0' 'series?ask=-1.0.0.0' 'detail?runs=0&low=nan&high=1' 'detail?runs=a&low=0&high=1' 'config?runs=..'; do
  want 400 "${address}$query"
done
# Other methods, names, sizes.
for method in POST PUT DELETE PATCH OPTIONS; do want 405 -X $method "$address"; done
want 405 -X POST -d @"$EBCLR" -H 'Expect:' "$address" || true
want 405 -I "$address"
want 403 -H 'Host: evil.example' "$address"
want 403 -H 'Host: evil.example:8090' "${address}events"
want 200 -H 'Host: localhost:9999' "$address"
# Work that another site's page orders.
for site in cross-site same-site; do
  want 403 -H "Sec-Fetch-Site: $site" -H 'Sec-Fetch-Mode: no-cors' "${address}detail?runs=0&low=0&high=1"
  want 200 -H "Sec-Fetch-Site: $site" -H 'Sec-Fetch-Mode: navigate' "$address"
done
# A run that is named often is answered once.
[ "$(ask "${address}series?ask=$(printf '0.0.0.0,%.0s' $(seq 200))" | grep -o '"id":0' | wc -l)" = 1 ] || fail "one run, many answers"
want 414 "${address}?$(head -c 6000 /dev/zero | tr '\0' a)"
want 431 "${address}?$(head -c 100000 /dev/zero | tr '\0' a)"
want 431 -H "X: $(head -c 50000 /dev/zero | tr '\0' a)" "$address"
want 200 -H "Range: bytes=$(printf '0-,%.0s' $(seq 1500))0-" "$address"

# 200 connections that say nothing.
port=${address#http://127.0.0.1:}
port=${port%/}
(
  for i in $(seq 200); do exec {fd}<>"/dev/tcp/127.0.0.1/$port"; done
  touch idle.ready
  sleep 30
) &
started+=("$!")
for _ in $(seq 300); do [ -e idle.ready ] && break; sleep 0.1; done
[ -e idle.ready ] || fail "200 connections could not be made"
for _ in 1 2 3 4 5; do want 200 --max-time 5 "$address"; done
[ "$(cat /proc/$server/status | sed -nE 's/^Threads:\s*//p')" -lt 300 ] || fail "too many threads"
kill -TERM "$server"
wait "$server" || fail "it does not end in peace"

# With a token, and only so, it listens elsewhere.
expect_error 2 "--token" "$EBCLR" watch runs --host 0.0.0.0
expect_error 2 "too short" "$EBCLR" watch runs --token abc
expect_error 2 "letters" "$EBCLR" watch runs --token 'a;b c&d=e#f'
expect_error 2 "no such folder" "$EBCLR" watch nowhere
expect_error 2 "RUN" "$EBCLR" watch
serve runs --host 127.0.0.1 --token auto
want 401 "${address%%\?*}"
want 401 "${address%%\?*}events"
want 303 "$address"
ask -c jar -o /dev/null "$address"
want 200 -b jar "${address%%\?*}"
taken=${address#http://127.0.0.1:}
expect_error 1 "--port" "$EBCLR" watch runs --port "${taken%%/*}"
kill -TERM "$server"
wait "$server" || fail "it does not end in peace"

# A training shows its own page, and goes on when the page cannot be served.
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 100000 --set guard.collapse=0 --watch --out runs/live 2>live.txt &
trainer=$!
started+=("$trainer")
for _ in $(seq 300); do grep -q '^watch at ' live.txt && [ -s runs/live/metrics.jsonl ] && break; sleep 0.1; done
address=$(sed -nE 's/^watch at (http:[^ ]*).*/\1/p' live.txt)
hear 4 >events.txt
grep -q '"state":"running"' events.txt || fail "events: $(head -c 1000 events.txt)"
port=${address#http://127.0.0.1:}
"$EBCLR" train "${SMALL[@]}" --epochs 1 --set method.name=simclr --watch --watch-port "${port%/}" --out runs/other 2>other.txt ||
  fail "a taken port stopped a training"
grep -q 'going on without a page' other.txt || fail "said: $(cat other.txt)"
kill -TERM "$trainer"
wait "$trainer" && fail "no code for an interruption"
grep -q '  stopped at step ' runs/live/train.log || fail "the log does not say that it was stopped"

# A study shows its plan, and its cells as they fill in.
cat >mine.yaml <<'YAML'
title: two methods <on> shapes
judges: [knn]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
fixed: {data.source: shapes, data.limit: 120, encoder.width: 8, train.batch_size: 16, train.epochs: 3, buffer.size: 120,
        sampler.steps: 2, log.every: 1, checkpoint.keep_every: 1}
YAML
"$EBCLR" reproduce mine.yaml --scale tiny --plan --watch --out study >plan.txt 2>plan.err || fail "--plan with --watch: $(cat plan.err)"
grep -q '^watch at ' plan.err && fail "a plan alone served a page"
"$EBCLR" reproduce mine.yaml --scale tiny --watch --out study >study.txt 2>study.err &
study=$!
started+=("$study")
for _ in $(seq 300); do grep -q '^watch at ' study.err && break; sleep 0.1; done
address=$(sed -nE 's/^watch at (http:[^ ]*).*/\1/p' study.err)
hear 120 >events.txt # until the study ends
wait "$study" || fail "the study failed: $(cat study.err)"
for part in '"title":"two methods <on> shapes"' '"state":"running"' '"state":"done"' '"score":"[0-9.]* %"' '"rows":\["EBCLR"\|"rows":\["SimCLR"\|"rows":\["simclr"'; do
  grep -q -- "$part" events.txt || fail "the study's page never said $part: $(grep -o '"study".\{300\}' events.txt | tail -n 1)"
done

# Event files for TensorBoard come when asked for. tests/train decodes them.
[ -z "$(ls runs/one/events.out.tfevents.* 2>/dev/null)" ] || fail "event files without being asked"
"$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --set log.tensorboard=true --set log.samples_every=1 --out runs/tb
[ "$(stat -c %s runs/tb/events.out.tfevents.*)" -gt 2000 ] || fail "no events"
echo "watch: page, events, curves; traversal, methods, names, sizes, idle connections, tokens; train --watch"
