// Opens a page in headless Chromium and looks at it as a reader would: on a desk, on phones, in the dark, on
// paper, and without scripts. Prints what is wrong and returns 1.
//   node browser.mjs CHROMIUM PAGE.html [--want SELECTOR]... [--want-script SELECTOR]... [--shots FOLDER]
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "../chromium.mjs";

const [browser, file, ...rest] = process.argv.slice(2);
const wanted = [], byScript = [];  // the latter: only where scripts run
let shots = null;
for (let i = 0; i < rest.length; i += 2) {
  if (rest[i] === "--want") wanted.push(rest[i + 1]);
  if (rest[i] === "--want-script") byScript.push(rest[i + 1]);
  if (rest[i] === "--shots") shots = rest[i + 1];
}
const address = pathToFileURL(resolve(file)).href;
const problems = [];
const problem = (where, what) => problems.push(where + ": " + what);
const chromium = launch(browser);

// --- what is asked inside of the page
const inside = (wanted) => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push("scrolls sideways: " + root.scrollWidth + " > " + innerWidth);
  for (const s of wanted) if (!document.querySelector(s)) found.push("nothing matches " + s);
  for (const img of document.images) {
    if (!img.complete || img.naturalWidth === 0) found.push("a picture does not load: " + img.alt);
    if (!img.hasAttribute("alt")) found.push("a picture has no alternative text");
  }
  let level = 0;
  for (const h of document.querySelectorAll("h1, h2, h3, h4")) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) found.push("headings skip a level before " + h.textContent);
    level = now;
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) found.push("two elements share an id");
  for (const a of document.querySelectorAll("nav a")) {
    if (!document.getElementById(a.getAttribute("href").slice(1))) found.push("a dead link: " + a.textContent);
  }
  for (const th of document.querySelectorAll("th")) if (!th.scope) found.push("a header cell without scope");
  // Labels of an axis keep apart and within the window.
  for (const area of document.querySelectorAll(".chart .area")) {
    for (const [kind, low, high] of [[".xt", "left", "right"], [".yt", "top", "bottom"]]) {
      const boxes = [...area.querySelectorAll(kind)].map((e) => e.getBoundingClientRect()).sort((a, b) => a[low] - b[low]);
      for (let i = 1; i < boxes.length; ++i) {
        if (boxes[i - 1][high] > boxes[i][low] + 0.5) { found.push("labels overlap in " + area.getAttribute("aria-label")); break; }
      }
      for (const b of boxes) {
        if (b.left < -0.5 || b.right > innerWidth + 0.5) { found.push("a label leaves the window in " + area.getAttribute("aria-label")); break; }
      }
    }
  }
  // Contrast of all text, WCAG AA.
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
    if (!walker.currentNode.textContent.trim() || seen.has(e) || e.closest("script, .unseen")) continue;
    seen.add(e);
    const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push("contrast " + ratio.toFixed(2) + " of '" + e.textContent.slice(0, 30) + "' (" + e.tagName + "." + e.className + ")");
  }
  return found;
};

// Every chart and map answers to the pointer, inside of the window.
const pointing = async () => {
  const found = [];
  const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
  for (const area of document.querySelectorAll(".chart .area, .map .area")) {
    const name = area.getAttribute("aria-label");
    area.scrollIntoView({ block: "center" });
    for (const share of [0.01, 0.5, 0.99]) {
      const box = area.getBoundingClientRect();
      let x = box.left + share * box.width, y = box.top + box.height / 2;
      if (area.closest(".map")) {
        const data = JSON.parse(area.parentElement.querySelector("script").textContent);
        const points = data.points.filter((p) => p).sort((a, b) => a[0] - b[0]);
        const p = points[Math.floor(share * (points.length - 1))];
        x = box.left + p[0] / data.w * box.width;
        y = box.top + p[1] / data.h * box.height;
      }
      area.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
      await frame();
      const tip = area.querySelector(".tip");
      if (!tip || !tip.textContent.trim()) { found.push("nothing to read in " + name); continue; }
      if (/NaN|undefined|null/.test(tip.textContent)) found.push("'" + tip.textContent + "' in " + name);
      const t = tip.getBoundingClientRect();
      if (t.left < -1 || t.right > innerWidth + 1) found.push("the read-out leaves the window in " + name);
      if (document.documentElement.scrollWidth > innerWidth) found.push("the read-out makes the page wider in " + name);
      if (area.dataset.tile) {
        const thumb = area.querySelector(".thumb");
        if (!thumb || !getComputedStyle(thumb).backgroundImage.startsWith("url(\"data:image/")) found.push("no image in " + name);
      }
    }
    area.dispatchEvent(new PointerEvent("pointerleave", { pointerType: "mouse" }));
    if (area.querySelector(".tip")) found.push("the read-out stays in " + name);
    area.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
    if (!area.querySelector(".tip")) found.push("keys do nothing in " + name);
    area.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    if (area.querySelector(".tip")) found.push("Escape does nothing in " + name);
  }
  for (const block of document.querySelectorAll(".code")) {
    if (!block.querySelector("button.copy")) found.push("a block without a copy button");
  }
  return found;
};

const views = [
  { name: "desktop", width: 1280, height: 900 },
  { name: "desktop-dark", width: 1280, height: 900, dark: true },
  { name: "phone", width: 360, height: 740, phone: true },
  { name: "small-phone-dark", width: 320, height: 568, phone: true, dark: true },
  { name: "without-script", width: 800, height: 900, still: true },
  { name: "print", width: 690, height: 1000, print: true },  // A4 within its margins
];

const look = async (view) => {
  const page = await chromium.open(view, (what) => problem(view.name, what), (url) => url === address || url.startsWith("data:"));
  const { call, ask } = page;
  await page.go(address);
  if (view.print) {
    for (const p of await ask(inside, view.still ? wanted : [...wanted, ...byScript])) problem(view.name, p);
    await call("Emulation.setEmulatedMedia", { media: "" });
    const { data } = await call("Page.printToPDF", { printBackground: false, preferCSSPageSize: true });
    const pdf = Buffer.from(data, "base64");
    const pages = (pdf.toString("latin1").match(/\/Type\s*\/Page\b/g) ?? []).length;
    if (!pdf.subarray(0, 5).equals(Buffer.from("%PDF-")) || pages < 1) problem(view.name, "no PDF came out");
    if (await ask("() => [...document.querySelectorAll('details')].some((d) => d.open)")) problem(view.name, "details stay open after printing");
    if (shots) writeFileSync(join(shots, "print.pdf"), pdf);
  } else {
    if (view.still) {
      // Scripts are off for the page, not for us.
      if (!(await ask("() => document.querySelectorAll('.copy, .tip').length === 0"))) problem(view.name, "a script ran");
    }
    for (const p of await ask(inside, view.still ? wanted : [...wanted, ...byScript])) problem(view.name, p);
    if (!view.still) for (const p of await ask(pointing)) problem(view.name, p);
    if (shots) {
      await ask("() => scrollTo(0, 0)");
      const height = await ask("() => document.documentElement.scrollHeight");
      const { data } = await call("Page.captureScreenshot", {
        captureBeyondViewport: true, clip: { x: 0, y: 0, width: view.width, height, scale: 1 },
      });
      writeFileSync(join(shots, view.name + ".png"), Buffer.from(data, "base64"));
    }
  }
  await page.close();
};

let code = 0;
try {
  for (const view of views) await look(view);
} catch (e) {
  problem("browser", e.message);
}
await chromium.close();
for (const p of problems) console.log(p);
if (problems.length > 0) code = 1;
else console.log("looked at " + views.length + " views: nothing wrong");
process.exit(code);
