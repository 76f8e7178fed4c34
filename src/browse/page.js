'use strict';
// The map is one canvas: dots from afar, tiles of sheets (16 x 16 thumbnails) from near. Texts go in as text, never as markup.
const $ = id => document.getElementById(id);
const canvas = $('map'), context = canvas.getContext('2d');
const colours = ['#0b62a8', '#d1495b', '#2e8b57', '#e09f3e', '#7d4fa8', '#3aa6a6', '#a0522d', '#6b7280', '#c2185b', '#8a9a00'];
const hint = 'drag to move, wheel or two fingers to zoom, click for similar images';
const sheetsKept = 400;
let info = null, places = null, slots = null, view = {x: 0.5, y: 0.5, scale: 1}, chosen = -1, marked = new Set(), drawing = false, frame = 0;
const sheets = new Map();  // by number, the one that was used longest ago first

function status(text) { $('status').textContent = text; }
// Each request says which index it is about: another one may be served here since the page was loaded.
function address(path) { return info ? path + (path.includes('?') ? '&' : '?') + 'of=' + info.id : path; }
async function get(path, kind) {
  const reply = await fetch(address(path)).catch(() => { throw new Error('no answer; does the server still run?'); });
  if (reply.status === 409) {
    location.reload();
    return new Promise(() => {});
  }
  if (!reply.ok) throw new Error(await reply.text());
  return reply[kind]();
}
// After a picture that does not load, and when the page is seen again: is this still the same index?
let looking = false;
async function look() {
  if (looking || !info || info.count === 0) return;
  looking = true;
  try { await get('/image?n=0', 'json'); } catch (e) { status(e.message); }
  looking = false;
}
// Only the newest question is answered: answers to others may come later.
let asked = 0;
async function question(paths, then) {
  const mine = ++asked;
  try {
    const answers = await Promise.all(paths.map(path => get(path, 'json')));
    if (mine === asked) then(...answers);
  } catch (e) {
    if (mine === asked) status(e.message);
  }
}
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; paint(); });
}
// Pixels of one unit of the map.
function unit() { return Math.min(canvas.width, canvas.height) * view.scale; }
function toScreen(i) {
  const u = unit();
  return [(places[2 * i] - view.x) * u + canvas.width / 2, (places[2 * i + 1] - view.y) * u + canvas.height / 2];
}
function sheet(n) {
  let s = sheets.get(n);
  if (s && s.used === frame) return s;
  if (s) {
    sheets.delete(n);  // it goes to the end
  } else {
    s = {image: new Image(), ready: false, used: frame};
    const fresh = s;
    s.image.onload = () => { fresh.ready = true; draw(); };
    s.image.onerror = () => {
      look();
      setTimeout(() => { if (sheets.get(n) === fresh) sheets.delete(n); draw(); }, 5000);
    };
    s.image.src = address('/sheet?n=' + n);
  }
  s.used = frame;
  sheets.set(n, s);
  return s;
}
// What this frame shows stays, however much it is: it would be asked for again at once.
function forgetSheets() {
  for (const [n, s] of sheets) {
    if (sheets.size <= sheetsKept || s.used === frame) break;
    s.image.onload = s.image.onerror = null;
    s.image.removeAttribute('src');
    sheets.delete(n);
  }
}
function cell() { return unit() / Math.sqrt(1.6 * info.count); }
function paint() {
  if (!places) return;
  frame++;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const size = cell(), tiles = size >= 7, per = info.columns * info.columns;
  let shown = 0;
  for (let i = 0; i < info.count; i++) {
    const [x, y] = toScreen(i);
    if (x < -size || y < -size || x > canvas.width + size || y > canvas.height + size) continue;
    shown++;
    const s = tiles ? sheet(Math.floor(slots[i] / per)) : null;
    if (s && s.ready) {
      const k = slots[i] % per, t = info.tile;
      context.drawImage(s.image, (k % info.columns) * t, Math.floor(k / info.columns) * t, t, t, x - size / 2, y - size / 2, size * 0.96, size * 0.96);
    } else {
      context.fillStyle = info.classes.length && info.classes[i] >= 0 ? colours[info.classes[i] % colours.length] : '#8a929e';
      const d = Math.max(1.5, size * 0.6);
      context.fillRect(x - d / 2, y - d / 2, d, d);
    }
    if (tiles && info.classes.length && info.classes[i] >= 0) {
      context.fillStyle = colours[info.classes[i] % colours.length];
      context.fillRect(x - size / 2, y + size * 0.42, size * 0.96, Math.max(1.5, size * 0.05));
    }
  }
  context.lineWidth = Math.max(2, size * 0.06);
  for (const i of marked) {
    const [x, y] = toScreen(i), d = Math.max(6, size);
    context.strokeStyle = i === chosen ? '#d1495b' : '#e09f3e';
    context.strokeRect(x - d / 2, y - d / 2, d, d);
  }
  // Where Enter would take an image.
  if (canvas.matches(':focus-visible')) {
    context.lineWidth = 2;
    context.strokeStyle = '#d1495b';
    context.beginPath();
    context.arc(canvas.width / 2, canvas.height / 2, Math.max(8, size * 0.7), 0, 7);
    context.stroke();
  }
  forgetSheets();
  document.body.dataset.shown = shown;
}
function resize() {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  draw();
}
// A file of a list, with what is to be said of it below its name.
function picture(file, value) {
  const b = document.createElement('button'), img = document.createElement('img');
  const name = document.createElement('span'), text = document.createElement('span');
  b.type = 'button';
  b.title = file.name;
  img.loading = 'lazy';
  img.onerror = look;
  img.src = address('/thumb?n=' + file.n);
  img.alt = file.name;
  name.className = 'name';
  name.textContent = file.name.split('/').pop();
  name.setAttribute('aria-hidden', 'true');  // the picture's alternative text says all of it
  text.textContent = value;
  b.append(img, name, text);
  b.addEventListener('click', () => choose(file.n, true));
  return b;
}
function list(title, items) {
  $('side').hidden = false;
  $('title').textContent = title;
  $('list').replaceChildren(...items);
  resize();
}
function choose(n, go) {
  return question(['/image?n=' + n, '/near?n=' + n + '&top=60'], (facts, near) => {
    chosen = n;
    const img = document.createElement('img'), path = document.createElement('p'), more = document.createElement('p');
    img.onerror = look;
    img.src = address('/thumb?n=' + n);
    img.alt = '';
    path.textContent = facts.path;
    more.textContent = [Math.round(facts.bytes / 1024) + ' kB', facts.energy === undefined ? '' : 'energy ' + facts.energy.toFixed(2), facts.class || ''].filter(Boolean).join(', ');
    $('chosen').replaceChildren(img, path, more);
    marked = new Set(near.map(h => h.n));
    list('Most similar', near.filter(h => h.n !== n).map(h => picture(h, h.value.toFixed(3))));
    if (go) { view.x = places[2 * n]; view.y = places[2 * n + 1]; view.scale = Math.max(view.scale, Math.sqrt(info.count) / 14); }
    status(hint);
    draw();
  });
}
// The middle of the view stays on the map.
function move(dx, dy) {
  view.x = Math.min(Math.max(view.x + dx, 0), 1);
  view.y = Math.min(Math.max(view.y + dy, 0), 1);
  draw();
}
// What lies at a point of the canvas stays there.
function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const u = unit(), next = Math.min(Math.max(view.scale * factor, 0.5), 3 * Math.sqrt(info.count) + 4), rest = 1 - view.scale / next;
  view.scale = next;
  move((x - canvas.width / 2) / u * rest, (y - canvas.height / 2) / u * rest);
}
// The image nearest to a point of the canvas, at most so far away; -1: none.
function nearest(x, y, farthest) {
  let best = -1, least = farthest ** 2;
  for (let i = 0; i < info.count; i++) {
    const [a, b] = toScreen(i), d = (a - x) ** 2 + (b - y) ** 2;
    if (d < least) { least = d; best = i; }
  }
  return best;
}
function pick(n) { if (n >= 0) choose(n, false); }
canvas.addEventListener('wheel', e => {
  e.preventDefault();
  if (!places) return;
  const ratio = canvas.width / canvas.clientWidth;
  zoom(Math.exp(-e.deltaY * 0.0015), e.offsetX * ratio, e.offsetY * ratio);
}, {passive: false});
// One pointer moves the map, two zoom it.
const pointers = new Map();
let moved = 0;
canvas.addEventListener('pointerdown', e => {
  if (e.button !== 0) return;
  if (pointers.size === 0) moved = 0;
  pointers.set(e.pointerId, {x: e.offsetX, y: e.offsetY});
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener('pointermove', e => {
  const p = pointers.get(e.pointerId);
  if (!p || !places) return;
  const ratio = canvas.width / canvas.clientWidth, dx = e.offsetX - p.x, dy = e.offsetY - p.y, u = unit();
  moved += Math.abs(dx) + Math.abs(dy);
  const other = pointers.size === 2 ? [...pointers.values()].find(q => q !== p) : null;
  if (other) {
    const before = Math.hypot(p.x - other.x, p.y - other.y), after = Math.hypot(e.offsetX - other.x, e.offsetY - other.y);
    move(-dx / 2 * ratio / u, -dy / 2 * ratio / u);
    if (before > 0 && after > 0) zoom(after / before, (e.offsetX + other.x) / 2 * ratio, (e.offsetY + other.y) / 2 * ratio);
  } else if (pointers.size === 1) {
    move(-dx * ratio / u, -dy * ratio / u);
  }
  p.x = e.offsetX;
  p.y = e.offsetY;
});
canvas.addEventListener('pointerup', e => {
  const still = pointers.delete(e.pointerId) && pointers.size === 0 && moved < 5;
  if (!still || !places) return;
  const ratio = canvas.width / canvas.clientWidth;
  pick(nearest(e.offsetX * ratio, e.offsetY * ratio, Math.max(12, cell() * 0.8)));
});
canvas.addEventListener('pointercancel', e => { pointers.delete(e.pointerId); });
canvas.addEventListener('keydown', e => {
  if (!places || e.ctrlKey || e.altKey || e.metaKey) return;
  const step = 0.1 / view.scale;
  const way = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]}[e.key];
  if (way) move(...way);
  else if (e.key === '+' || e.key === '=') zoom(1.3);
  else if (e.key === '-') zoom(1 / 1.3);
  else if (e.key === 'Enter' || e.key === ' ') pick(nearest(canvas.width / 2, canvas.height / 2, Infinity));
  else return;
  e.preventDefault();
});
for (const change of ['focus', 'blur']) canvas.addEventListener(change, draw);
$('closer').addEventListener('click', () => { if (places) zoom(1.6); });
$('farther').addEventListener('click', () => { if (places) zoom(1 / 1.6); });
$('whole').addEventListener('click', () => { view = {x: 0.5, y: 0.5, scale: 0.95}; draw(); });
$('strangers').addEventListener('click', () => {
  status('looking for strangers');
  question(['/strangers'], found => {
    marked = new Set(found.slice(0, 100).map(h => h.n));
    list('Strangest first', found.map(h => picture(h, h.value.toPrecision(3))));
    status(found.length + ' strangest images');
    draw();
  });
});
$('copies').addEventListener('click', () => {
  status('looking for copies');
  question(['/copies'], groups => {
    const items = [];
    marked = new Set(groups.flat().map(h => h.n));
    groups.forEach((files, g) => {
      const head = document.createElement('p');
      head.className = 'group';
      head.textContent = 'group ' + (g + 1);
      items.push(head, ...files.map(h => picture(h, '')));
    });
    list(groups.length ? 'Copies' : 'No copies', items);
    status(groups.length + ' groups of copies');
    draw();
  });
});
let waiting = 0;
$('find').addEventListener('input', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const text = $('find').value;
    question(text ? ['/find?text=' + encodeURIComponent(text)] : [], (found = []) => {
      marked = new Set(found.map(h => h.n));
      list(text ? found.length + ' files named so' : '', found.map(h => picture(h, '')));
      status(hint);
      draw();
    });
  }, 200);
});
window.addEventListener('resize', resize);
document.addEventListener('visibilitychange', () => { if (!document.hidden) look(); });
(async () => {
  try {
    const told = await get('/info', 'json');
    info = told;
    const bytes = await get('/map', 'arrayBuffer');
    slots = new Uint32Array(bytes, 8 * info.count, info.count);
    places = new Float32Array(bytes, 0, 2 * info.count);
    $('where').textContent = info.count + ' images of ' + info.folder;
    info.names.forEach((name, k) => {
      const s = document.createElement('span'), dot = document.createElement('i');
      dot.style.background = colours[k % colours.length];
      s.append(dot, document.createTextNode(name));
      $('legend').append(s);
    });
    view.scale = 0.95;
    status(hint);
    document.body.dataset.ready = 'yes';
    resize();
  } catch (e) { status(e.message); }
})();
