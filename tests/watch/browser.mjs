// The live page in Chromium. Prints what is wrong and returns 1.
//   node browser.mjs CHROMIUM ADDRESS [--shots FOLDER]
// where ./runs is what is watched: a run of it is removed.
import { rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { launch } from "../chromium.mjs";

const [browser, address, flag, folder] = process.argv.slice(2);
const shots = flag === "--shots" ? folder : null;
const problems = [];
const chromium = launch(browser);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const origin = new URL(address).origin;
const open = (view) => chromium.open(view, (what) => problems.push(view.name + ": " + what), (url) => url.startsWith(origin + "/") || url.startsWith("data:"));

let looked = 0;
const expect = (what, holds, seen) => {
  ++looked;
  if (!holds) problems.push(what + (seen === undefined ? "" : " (" + JSON.stringify(seen) + ")"));
};
// Asks until the answer is good, at most so many seconds.
const until = async (what, ask, good, seconds = 40) => {
  let answer;
  for (let i = 0; i < seconds * 5; ++i) {
    answer = await ask();
    if (good(answer)) { ++looked; return answer; }
    await sleep(200);
  }
  problems.push("never: " + what + " (" + JSON.stringify(answer) + ")");
  return answer;
};
const save = async (page, name, whole = true) => { if (shots) writeFileSync(join(shots, name + ".png"), await page.shot(whole)); };

// --- asked inside of the page
const rowsOf = () => [...document.querySelectorAll("#runs .run")].map((li) => ({
  name: li.querySelector(".name").textContent, state: li.querySelector(".state").textContent, shown: li.querySelector("input").checked,
  focus: li.classList.contains("focus"),
}));
const chartOf = (key) => {
  const f = document.querySelector('figure[data-chart="' + key + '"]');
  if (!f || f.hidden) return null;
  const canvas = f.querySelector("canvas");
  // Is anything painted?
  let painted = 0;
  if (canvas && canvas.width > 0) {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 0) ++painted;
  }
  return { points: Number(f.dataset.points ?? 0), range: (f.dataset.range ?? "").split(" ").map(Number), said: f.querySelector(".unseen").textContent, painted };
};
const click = (name) => {
  const row = [...document.querySelectorAll("#runs .run")].find((li) => li.querySelector(".name").textContent === name);
  row.querySelector(".name").click();
};
const tileOf = (name) => [...document.querySelectorAll("#tiles > div")].find((d) => d.querySelector("dt").textContent === name)?.querySelector("dd").firstChild.textContent;
const shape = () => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push("scrolls sideways: " + root.scrollWidth + " > " + innerWidth);
  for (const img of document.images) {
    if (!img.alt) found.push("a picture has no alternative text");
    if (img.complete && img.naturalWidth === 0) found.push("a picture does not load: " + img.src);
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) found.push("two elements share an id");
  if (/NaN|undefined|\[object/.test(document.body.innerText)) found.push("says " + document.body.innerText.match(/.{0,30}(NaN|undefined|\[object).{0,30}/)[0]);
  const parse = (c) => {
    const n = c.match(/-?[\d.]+/g).map(Number);
    const scale = c.startsWith("color(") ? 1 : 255;
    return [n[0] / scale, n[1] / scale, n[2] / scale, n.length > 3 ? n[3] : 1];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c[3] > 0.99) return c;
    }
    return [1, 1, 1, 1];
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || seen.has(e) || e.closest("script, .unseen, [hidden]")) continue;
    seen.add(e);
    const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push("contrast " + ratio.toFixed(2) + " of '" + e.textContent.slice(0, 30) + "' (" + e.tagName + "." + e.className + ")");
  }
  return found;
};
const bad = "<img src=x onerror=alert(1)>";

try {
  // --- on a desk
  const page = await open({ name: "desktop", width: 1440, height: 900 });
  const { ask, call } = page;
  await page.go(address);
  const rows = await until("three runs in the list", () => ask(rowsOf), (r) => r.length >= 3);
  expect("the training run trains", rows.find((r) => r.name === "training")?.state === "running", rows);
  expect("the crashed run has stopped", rows.find((r) => r.name === "crashed")?.state === "stopped", rows);
  expect("the finished run has finished, under its odd name", rows.find((r) => r.name === bad)?.state === "finished", rows);
  expect("a name is text", await ask(() => document.querySelector("#runs img, #focus img, h2 img") === null));
  await ask(click, "training");
  await until("a look at one run", () => ask(() => document.getElementById("focus").textContent), (t) => t === "training");
  await ask(() => { window.mark = 1; [...document.querySelectorAll("#runs input:checked")].forEach((b) => { if (b.getAttribute("aria-label") !== "show training") b.click(); }); });
  await ask(click, "training");
  const first = await until("the loss is drawn", () => ask(chartOf, "loss"), (c) => c && c.points > 5 && c.painted > 1000);
  await until("accuracy is drawn", () => ask(chartOf, "accuracy"), (c) => c && c.points > 0 && c.painted > 100);
  await until("energies are drawn", () => ask(chartOf, "energy"), (c) => c && c.points > 10);
  const epoch = await ask(tileOf, "Epoch");
  await until("points are added without a reload", () => ask(chartOf, "loss"), (c) => c && c.range[1] > first.range[1]);
  await until("the epoch advances", () => ask(tileOf, "Epoch"), (t) => Number.parseFloat(t) > Number.parseFloat(epoch));
  expect("the page was not loaded again", (await ask(() => window.mark)) === 1);
  for (const key of ["gap", "lr", "images_per_second", "spread", "grad_norm", "out_of_range"]) expect("a chart of " + key, (await ask(chartOf, key)) !== null);

  // Pointing, then dragging.
  await ask(() => document.querySelector('figure[data-chart="loss"]').scrollIntoView({ block: "center" }));
  const box = await ask(() => {
    const b = document.querySelector('figure[data-chart="loss"] .u-over').getBoundingClientRect();
    return { x: b.x, y: b.y, width: b.width, height: b.height };
  });
  const mouse = (type, share, buttons = 0) => call("Input.dispatchMouseEvent", {
    type, x: box.x + share * box.width, y: box.y + box.height / 2, button: type === "mouseMoved" && buttons === 0 ? "none" : "left", buttons, clickCount: 1,
  });
  for (const share of [0.02, 0.5, 0.98]) {
    await mouse("mouseMoved", share);
    const tip = await until("a read-out at " + share, () => ask(() => {
      const t = document.querySelector('figure[data-chart="loss"] .tip');
      const b = t.getBoundingClientRect();
      return t.hidden ? null : { text: t.textContent, inside: b.left >= 0 && b.right <= innerWidth };
    }), (t) => t && /epoch .*\d/.test(t.text), 5);
    expect("the read-out is readable", tip && tip.inside && !/NaN|undefined/.test(tip.text), tip);
  }
  const whole = (await ask(chartOf, "loss")).range;
  await mouse("mousePressed", 0.3, 1);
  for (const share of [0.35, 0.4, 0.5, 0.6]) await mouse("mouseMoved", share, 1);
  await mouse("mouseReleased", 0.6);
  const near = await until("a zoom", () => ask(chartOf, "loss"), (c) => c.range[1] - c.range[0] < 0.5 * (whole[1] - whole[0]), 5);
  const other = await ask(chartOf, "gap");
  expect("all charts zoom together", other && Math.abs(other.range[0] - near.range[0]) < 1e-9, [other, near]);
  expect("a way back", await ask(() => !document.getElementById("unzoom").hidden));
  await save(page, "zoomed", false);
  await ask(() => dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })));
  await until("all again", () => ask(chartOf, "loss"), (c) => c.range[1] - c.range[0] >= whole[1] - whole[0], 5);
  await ask(() => document.querySelector('#axis [data-value="seconds"]').click());
  await until("over time", () => ask(chartOf, "loss"), (c) => c.points > 0 && c.range[1] !== whole[1], 5);
  await ask(() => document.querySelector('#axis [data-value="units"]').click());
  await until("over forward-units", () => ask(chartOf, "loss"), (c) => c.points > 0 && c.range[1] > 1000, 5);
  await ask(() => document.querySelector('#axis [data-value="epoch"]').click());
  await ask(() => { const s = document.getElementById("smooth"); s.value = 0.9; s.dispatchEvent(new Event("input")); });
  await ask(() => document.getElementById("log").click());
  await until("smooth and logarithmic", () => ask(chartOf, "loss"), (c) => c && c.painted > 500, 5);
  await ask(() => document.getElementById("log").click());

  // Chains over time.
  const picture = () => ask(() => {
    const img = document.querySelector("#pictures img");
    return img ? { src: img.getAttribute("src"), width: img.naturalWidth, at: document.getElementById("at").textContent, max: document.getElementById("epoch").max } : null;
  });
  await ask(() => document.getElementById("chains").scrollIntoView());
  const newest = await until("a picture of chains", picture, (p) => p && p.width > 50);
  await ask(() => { const s = document.getElementById("epoch"); s.value = 0; s.dispatchEvent(new Event("input")); });
  const oldest = await until("an older picture", picture, (p) => p && p.width > 50 && p.src !== newest.src, 5);
  await until("new pictures are added", picture, (p) => Number(p.max) > Number(newest.max));
  expect("the slider stays where it was put", (await picture()).src === oldest.src, [await picture(), oldest]);

  // A run that ended badly says how to go on; one that is compared shows what differs.
  await ask(click, "crashed");
  await until("how to resume", () => ask(() => document.getElementById("notes").textContent), (t) => /ebclr train --resume \/\S*\/runs\/crashed/.test(t) && t.includes("it crashed"));
  await ask((n) => { [...document.querySelectorAll("#runs .run")].find((li) => li.querySelector(".name").textContent === n).querySelector("input").click(); }, bad);
  await until("what differs", () => ask(() => document.getElementById("keys").textContent), (t) => t.includes("method.name") && t.includes("simclr"));
  await until("the log", () => ask(() => document.getElementById("tail").textContent), (t) => t.includes("simclr on"));
  await until("a run that appeared later", () => ask(rowsOf), (r) => r.some((x) => x.name === "later"));
  await ask(() => { scrollTo(0, 0); document.getElementById("all").click(); });
  await until("all runs in one chart", () => ask(chartOf, "loss"), (c) => c && c.said.split(";").length >= 4);
  await ask(() => { const f = document.getElementById("filter"); f.value = "crash"; f.dispatchEvent(new Event("input")); });
  expect("the filter filters", (await ask(() => document.querySelectorAll("#runs .run:not([hidden])").length)) === 1);
  await ask(() => { const f = document.getElementById("filter"); f.value = ""; f.dispatchEvent(new Event("input")); });
  for (const p of await ask(shape)) problems.push("desktop: " + p);
  await ask(() => scrollTo(0, 0));
  await sleep(600);
  await save(page, "desktop");
  const before = await ask(() => getComputedStyle(document.body).backgroundColor);
  await ask(() => document.querySelector('#theme [data-value="dark"]').click());
  await until("charts in the dark", () => ask(chartOf, "loss"), (c) => c && c.painted > 1000, 5);
  expect("dark is dark", (await ask(() => getComputedStyle(document.body).backgroundColor)) !== before);
  for (const p of await ask(shape)) problems.push("dark: " + p);
  await sleep(300);
  await save(page, "dark");
  await ask(() => document.querySelector('#theme [data-value="auto"]').click());

  // A tab that nobody sees gives its connection back; one that is seen again goes on.
  const liveText = () => ask(() => document.getElementById("live").textContent);
  const see = (hidden) => ask((h) => {
    Object.defineProperty(document, "hidden", { value: h, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await until("live", liveText, (t) => t === "live");
  await see(true);
  expect("a hidden tab lets go", (await liveText()) === "paused", await liveText());
  rmSync("runs/later", { recursive: true, force: true });
  await see(false);
  await until("live again", liveText, (t) => t === "live");
  await until("a run that was removed goes", () => ask(rowsOf), (r) => !r.some((x) => x.name === "later"));
  expect("the others stay", (await ask(rowsOf)).length >= 3, await ask(rowsOf));
  await page.close();

  // Too many listeners: the page says so, and goes on when there is a place.
  const others = [];
  const listen = () => {
    const s = connect(Number(new URL(address).port), "127.0.0.1");
    s.on("data", () => {});
    s.on("error", () => {});
    s.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    others.push(s);
  };
  for (let i = 0; i < 32; ++i) listen();
  await sleep(3000);  // the server has noticed that the closed page is gone
  for (let i = 0; i < 4; ++i) listen();
  await sleep(1000);
  const late = await chromium.open({ name: "late", width: 1000, height: 700 },
    (what) => { if (!/503/.test(what)) problems.push("late: " + what); }, (url) => url.startsWith(origin + "/") || url.startsWith("data:"));
  await late.go(address);
  await until("too many listeners", () => late.ask(() => document.getElementById("live").textContent), (t) => t.includes("Too many pages"));
  expect("what is not known is not said", await late.ask(() => document.getElementById("empty").hidden));
  for (const s of others) s.destroy();
  await until("a place for the late one", () => late.ask(() => document.getElementById("live").textContent), (t) => t === "live");
  await until("its runs", () => late.ask(rowsOf), (r) => r.length >= 3);
  await late.close();

  // --- on phones
  for (const view of [{ name: "phone", width: 360, height: 740, phone: true }, { name: "small-phone", width: 320, height: 568, phone: true, dark: true }]) {
    const phone = await open(view);
    await phone.go(address);
    await until("charts on a " + view.name, () => phone.ask(chartOf, "loss"), (c) => c && c.points > 5 && c.painted > 500);
    await phone.ask(() => { document.getElementById("list").open = true; });
    await sleep(500);
    for (const p of await phone.ask(shape)) problems.push(view.name + ": " + p);
    await save(phone, view.name);
    await phone.close();
  }
} catch (e) {
  problems.push("browser: " + e.message);
}
await chromium.close();
for (const p of problems) console.log(p);
if (problems.length === 0) console.log("looked at the live page: " + looked + " things hold");
process.exit(problems.length > 0 ? 1 : 0);
