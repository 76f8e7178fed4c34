// Opens the page of an index in headless Chromium and uses it: map, zoom, click, search, strangers, copies; then asks the
// server for what it must not give. Plain Node, no packages. node browser.mjs CHROMIUM ADDRESS [SHOT.png]
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [browser, address, shot] = process.argv.slice(2);
const problems = [];
const expect = (ok, what) => { if (!ok) problems.push(what); };

const profile = mkdtempSync(join(tmpdir(), "ebclr-browser-"));
const child = spawn(browser, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
  "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--remote-debugging-pipe", "--user-data-dir=" + profile, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const waiting = new Map(), listeners = [];
let number = 0, received = "";
child.stdio[4].setEncoding("utf8");
child.stdio[4].on("data", (text) => {
  received += text;
  for (let end; (end = received.indexOf("\0")) >= 0;) {
    const message = JSON.parse(received.slice(0, end));
    received = received.slice(end + 1);
    const w = waiting.get(message.id);
    if (w) { waiting.delete(message.id); if (message.error) w.failed(new Error(message.error.message)); else w.done(message.result); }
    else for (const l of listeners) l(message);
  }
});
const send = (method, params = {}, sessionId = undefined) => new Promise((done, failed) => {
  waiting.set(++number, { done, failed });
  child.stdio[3].write(JSON.stringify({ id: number, method, params, sessionId }) + "\0");
});
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// One request as no browser would send it; its status.
const raw = (method, path, headers = {}) => new Promise((done) => {
  const u = new URL(address);
  const r = request({ host: u.hostname, port: u.port, method, path, headers }, (reply) => { reply.resume(); reply.on("end", () => done(reply.statusCode)); });
  r.on("error", () => done(0));
  r.end();
});

let sheetsAsked = 0;
try {
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const call = (method, params) => send(method, params, sessionId);
  listeners.push((m) => {
    if (m.sessionId !== sessionId) return;
    const p = m.params;
    if (m.method === "Runtime.exceptionThrown") problems.push(p.exceptionDetails.exception?.description ?? p.exceptionDetails.text);
    // The page is once told that it is of another index.
    if (m.method === "Log.entryAdded" && p.entry.level === "error" && !/of=another/.test(p.entry.url ?? "")) problems.push(p.entry.text + " " + p.entry.url);
    if (m.method === "Network.requestWillBeSent") {
      if (!p.request.url.startsWith("data:") && new URL(p.request.url).host !== new URL(address).host) problems.push("fetches " + p.request.url);
      if (p.request.url.includes("/sheet?")) ++sheetsAsked;
    }
  });
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(domain + ".enable");
  await call("Emulation.setDeviceMetricsOverride", { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
  await call("Page.navigate", { url: address });
  const ask = async (expression) => {
    const r = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description ?? r.exceptionDetails.text);
    return r.result.value;
  };
  const until = async (expression, what) => {
    for (let i = 0; i < 150; ++i) { if (await ask("document.body && (" + expression + ")")) return true; await sleep(200); }
    problems.push(what);
    return false;
  };
  await until("document.body.dataset.ready === 'yes' && document.body.dataset.shown === '20000'", "the map does not show 20,000 images");
  expect(await ask("document.getElementById('where').textContent.startsWith('20000 images')"), "the header does not count");
  expect(await ask("document.getElementById('legend').textContent.includes('a<b>,c')"), "no legend of classes");
  // Zoom in at the middle: fewer images, as tiles.
  const mouse = (type, x, y, more = {}) => call("Input.dispatchMouseEvent", { type, x, y, ...more });
  for (let i = 0; i < 6; ++i) await mouse("mouseWheel", 500, 450, { deltaX: 0, deltaY: -300 });
  await until("Number(document.body.dataset.shown) < 2000 && Number(document.body.dataset.shown) > 0", "the wheel does not zoom");
  await until("[...sheets.values()].some(s => s.ready)", "no thumbnails load");
  // Neighbours share a sheet: a part of the map does not need all 79 of them.
  expect(sheetsAsked < 70, "a part of the map needs " + sheetsAsked + " sheets");
  await until("[...sheets.values()].every(s => s.ready)", "some thumbnails do not load");
  // Too many sheets: the oldest go, what is seen stays and is not asked for again.
  await ask("(() => { for (let k = 1000; k < 1450; k++) sheets.set(k, {image: new Image(), ready: false, used: 0}); draw(); })()");
  const sheetsBefore = sheetsAsked;
  await until("sheets.size === 400", "sheets are kept without end");
  expect(await ask("(() => { const per = info.columns ** 2; for (let i = 0; i < info.count; i++) { const [x, y] = toScreen(i); if (x >= 0 && y >= 0 && x <= canvas.width && y <= canvas.height && !sheets.get(Math.floor(slots[i] / per))?.ready) return false; } return true; })()"), "a sheet that is seen was thrown away");
  await sleep(1000);
  expect(sheetsAsked === sheetsBefore, "sheets are asked for again and again");
  // Drawn with the next frame after they have loaded.
  await until("(() => { const d = context.getImageData(0, 0, canvas.width, canvas.height).data, s = new Set(); for (let i = 0; i < d.length; i += 400) s.add(d[i] + ',' + d[i + 1]); return s.size; })() > 5", "the canvas stays empty");
  const before = await ask("view.x");
  await mouse("mousePressed", 500, 450, { button: "left", buttons: 1, clickCount: 1 });
  await mouse("mouseMoved", 420, 450, { button: "left", buttons: 1 });
  await mouse("mouseReleased", 420, 450, { button: "left", clickCount: 1 });
  expect(await ask("view.x") > before, "dragging does not move the map");
  // A click near an image finds similar ones.
  const at = await ask("(() => { let b = 0, n = 1e9; for (let i = 0; i < info.count; i++) { const [x, y] = toScreen(i), d = (x - 400) ** 2 + (y - 400) ** 2; if (d < n) { n = d; b = i; } } const [x, y] = toScreen(b), r = canvas.getBoundingClientRect(); return [x + r.left, y + r.top]; })()");
  await mouse("mousePressed", at[0], at[1], { button: "left", buttons: 1, clickCount: 1 });
  await mouse("mouseReleased", at[0], at[1], { button: "left", clickCount: 1 });
  await until("document.querySelectorAll('#list button').length === 59", "a click does not find similar images");
  await until("[...document.querySelectorAll('#list img')].slice(0, 6).every(i => i.complete && i.naturalWidth === 96)", "thumbnails of the list do not load");
  expect(await ask("[...document.querySelectorAll('#list button')].every(b => b.title && b.querySelector('img').alt === b.title && b.title.endsWith(b.querySelector('.name').textContent))"), "hits have no names");
  // Answers out of order, and none at all.
  await ask("(() => { const g = get; window.slow = 0; window.get = async (path, kind) => { if (/n=5(&|$)/.test(path)) await new Promise(done => setTimeout(done, 800)); try { return await g(path, kind); } finally { if (/n=5(&|$)/.test(path)) window.slow++; } }; choose(5, false); choose(7, false); window.get = g; })()");
  await until("window.slow === 2", "the slow answers never came");
  const seventh = await ask("get('/image?n=7', 'json').then(f => f.path)");
  expect(await ask("chosen === 7 && document.querySelector('#chosen p').textContent") === seventh, "an older answer replaced a newer one");
  await ask("(() => { window.real = fetch; window.fetch = () => Promise.reject(new TypeError('gone')); document.querySelector('#list button').click(); })()");
  await until("document.getElementById('status').textContent.includes('no answer')", "a lost server is not noticed");
  await ask("window.fetch = window.real");
  // By keyboard, and by the buttons.
  await ask("document.getElementById('whole').click()");
  await ask("canvas.focus()");
  const key = async (key) => {
    await call("Input.dispatchKeyEvent", { type: "keyDown", key, text: key.length === 1 ? key : key === "Enter" ? "\r" : undefined });
    await call("Input.dispatchKeyEvent", { type: "keyUp", key });
  };
  for (let i = 0; i < 20; ++i) await key("-");
  expect(await ask("view.scale") >= 0.5, "the keyboard zooms out without end");
  for (let i = 0; i < 40; ++i) await key("+");
  expect(await ask("view.scale <= 3 * Math.sqrt(info.count) + 4"), "the keyboard zooms in without end");
  for (let i = 0; i < 8; ++i) await key("-");
  const middle = await ask("nearest(canvas.width / 2, canvas.height / 2, Infinity)");
  await key("Enter");
  await until("chosen === " + middle, "Enter does not choose the image in the middle");
  const scale = await ask("view.scale");
  await ask("document.getElementById('farther').click()");
  expect(await ask("view.scale") < scale, "the button does not zoom out");
  await ask("document.getElementById('closer').click()");
  expect(Math.abs(await ask("view.scale") / scale - 1) < 1e-6, "the button does not zoom in");
  // Two fingers.
  const touch = (type, ...points) => call("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
  await touch("touchStart", [400, 400]);
  await touch("touchStart", [400, 400], [500, 400]);
  await touch("touchMove", [350, 400], [550, 400]);
  await touch("touchEnd");
  await until("view.scale > 1.5 * " + scale, "two fingers do not zoom");
  await ask("document.getElementById('strangers').click()");
  await until("document.getElementById('title').textContent === 'Strangest first' && document.querySelectorAll('#list button').length === 200", "no strangers");
  await ask("document.getElementById('copies').click()");
  await until("document.getElementById('title').textContent === 'Copies' && document.querySelectorAll('#list .group').length >= 1", "no copies");
  await ask("(() => { const f = document.getElementById('find'); f.value = '<img'; f.dispatchEvent(new Event('input')); })()");
  await until("document.getElementById('title').textContent === '1 files named so'", "no search by name");
  await ask("document.querySelector('#list button').click()");
  await until("document.querySelector('#chosen p')?.textContent.startsWith('<img')", "the path is not shown as text");
  expect(await ask("document.title") === "ebclr browse", "a file name became markup");
  await ask("(() => { const f = document.getElementById('find'); f.value = '<IMG'; f.dispatchEvent(new Event('input')); })()");
  await sleep(500);
  await until("document.getElementById('title').textContent === '1 files named so'", "the search minds large letters");
  // Another index in this one's place: the page begins anew instead of mixing them.
  await ask("(() => { window.old = true; info.id = 'another'; document.querySelector('#list button').click(); })()");
  await until("window.old !== true && document.body.dataset.ready === 'yes' && info.id.length === 16", "the page of another index goes on");
  if (shot) {
    await ask("document.getElementById('whole').click()");
    await sleep(1500);
    const { data } = await call("Page.captureScreenshot", {});
    writeFileSync(shot, Buffer.from(data, "base64"));
  }
  for (const [method, path, headers, want] of [
    ["POST", "/info", {}, [400, 404, 405]], ["DELETE", "/", {}, [400, 404, 405]], ["GET", "/../../etc/passwd", {}, [400, 404]],
    ["GET", "/thumb?n=../../etc/passwd", {}, [400, 404]], ["GET", "/thumb?n=20000", {}, [404]], ["GET", "/thumb?n=-1", {}, [404]],
    ["GET", "/sheet?n=79", {}, [404]], ["GET", "/info", { Host: "evil.example" }, [400, 403, 421]],
    ["GET", "/near?n=0", { "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors" }, [403]], ["GET", "/thumb?n=0&of=0", {}, [409]], ["GET", "/nothing", {}, [404]]]) {
    const got = await raw(method, path, headers);
    expect(want.includes(got), method + " " + path + " " + JSON.stringify(headers) + " is answered with " + got);
  }
} catch (e) {
  problems.push(e.message);
}
child.kill();
await new Promise((done) => { if (child.exitCode !== null || child.signalCode !== null) done(); else child.on("exit", done); });
try { rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }); } catch { console.log("left behind: " + profile); }
for (const p of problems) console.log(p);
if (!problems.length) console.log("used the page: nothing wrong");
process.exit(problems.length ? 1 : 0);
