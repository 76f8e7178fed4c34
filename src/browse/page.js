'use strict';
// The map is one canvas: dots from afar, tiles of sheets (16 x 16 thumbnails) from near. Texts go in as text, never as markup.
const $ = id => document.getElementById(id);
const canvas = $('map'), context = canvas.getContext('2d');
const colours = ['#0b62a8', '#d1495b', '#2e8b57', '#e09f3e', '#7d4fa8', '#3aa6a6', '#a0522d', '#6b7280', '#c2185b', '#8a9a00'];
let info = null, places = null, view = {x: 0.5, y: 0.5, scale: 1}, chosen = -1, marked = new Set(), drawing = false;
const sheets = new Map();

function status(text) { $('status').textContent = text; }
async function get(path, kind) {
  const reply = await fetch(path);
  if (!reply.ok) throw new Error(await reply.text());
  return reply[kind]();
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
  if (!s) {
    s = {image: new Image(), ready: false};
    s.image.onload = () => { s.ready = true; draw(); };
    s.image.src = '/sheet?n=' + n;
    sheets.set(n, s);
    if (sheets.size > 400) sheets.delete(sheets.keys().next().value);
  }
  return s;
}
function cell() { return unit() / Math.sqrt(1.6 * info.count); }
function paint() {
  if (!places) return;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const size = cell(), tiles = size >= 7, per = info.columns * info.columns;
  let shown = 0;
  for (let i = 0; i < info.count; i++) {
    const [x, y] = toScreen(i);
    if (x < -size || y < -size || x > canvas.width + size || y > canvas.height + size) continue;
    shown++;
    const s = tiles ? sheet(Math.floor(i / per)) : null;
    if (s && s.ready) {
      const k = i % per, t = info.tile;
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
  document.body.dataset.shown = shown;
}
function resize() {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  draw();
}
function picture(n, caption) {
  const b = document.createElement('button'), img = document.createElement('img'), text = document.createElement('span');
  b.type = 'button';
  img.src = '/thumb?n=' + n;
  img.loading = 'lazy';
  img.alt = 'image ' + n;
  text.textContent = caption;
  b.append(img, text);
  b.addEventListener('click', () => choose(n, true));
  return b;
}
function list(title, items) {
  $('side').hidden = false;
  $('title').textContent = title;
  $('list').replaceChildren(...items);
  resize();
}
async function choose(n, move) {
  chosen = n;
  const [facts, near] = await Promise.all([get('/image?n=' + n, 'json'), get('/near?n=' + n + '&top=60', 'json')]);
  const img = document.createElement('img'), path = document.createElement('p'), more = document.createElement('p');
  img.src = '/thumb?n=' + n;
  img.alt = '';
  path.textContent = facts.path;
  more.textContent = [Math.round(facts.bytes / 1024) + ' kB', facts.energy === undefined ? '' : 'energy ' + facts.energy.toFixed(2), facts.class || ''].filter(Boolean).join(', ');
  $('chosen').replaceChildren(img, path, more);
  marked = new Set(near.map(h => h.n));
  list('Most similar', near.filter(h => h.n !== n).map(h => picture(h.n, h.value.toFixed(3))));
  if (move) { view.x = places[2 * n]; view.y = places[2 * n + 1]; view.scale = Math.max(view.scale, Math.sqrt(info.count) / 14); }
  draw();
}
canvas.addEventListener('wheel', e => {
  e.preventDefault();
  const ratio = canvas.width / canvas.clientWidth, u = unit();
  const px = (e.offsetX * ratio - canvas.width / 2) / u, py = (e.offsetY * ratio - canvas.height / 2) / u;
  const f = Math.exp(-e.deltaY * 0.0015), next = Math.min(Math.max(view.scale * f, 0.5), 3 * Math.sqrt(info.count) + 4);
  const grown = next / view.scale;
  view.x += px * (1 - 1 / grown);
  view.y += py * (1 - 1 / grown);
  view.scale = next;
  draw();
}, {passive: false});
let drag = null;
canvas.addEventListener('pointerdown', e => { drag = {x: e.offsetX, y: e.offsetY, moved: 0}; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener('pointermove', e => {
  if (!drag) return;
  const ratio = canvas.width / canvas.clientWidth, u = unit(), dx = e.offsetX - drag.x, dy = e.offsetY - drag.y;
  drag.moved += Math.abs(dx) + Math.abs(dy);
  view.x -= dx * ratio / u;
  view.y -= dy * ratio / u;
  drag.x = e.offsetX;
  drag.y = e.offsetY;
  draw();
});
canvas.addEventListener('pointerup', e => {
  const still = drag && drag.moved < 5;
  drag = null;
  if (!still || !places) return;
  const ratio = canvas.width / canvas.clientWidth;
  let best = -1, nearest = Math.max(12, cell() * 0.8) ** 2;
  for (let i = 0; i < info.count; i++) {
    const [x, y] = toScreen(i), d = (x - e.offsetX * ratio) ** 2 + (y - e.offsetY * ratio) ** 2;
    if (d < nearest) { nearest = d; best = i; }
  }
  if (best >= 0) choose(best, false).catch(e => status(e.message));
});
canvas.addEventListener('keydown', e => {
  const step = 0.1 / view.scale;
  const move = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]}[e.key];
  if (move) { view.x += move[0]; view.y += move[1]; }
  else if (e.key === '+') view.scale *= 1.3;
  else if (e.key === '-') view.scale /= 1.3;
  else return;
  e.preventDefault();
  draw();
});
$('whole').addEventListener('click', () => { view = {x: 0.5, y: 0.5, scale: 0.95}; draw(); });
$('strangers').addEventListener('click', async () => {
  try {
    status('looking for strangers');
    const found = await get('/strangers', 'json');
    marked = new Set(found.slice(0, 100).map(h => h.n));
    list('Strangest first', found.map(h => picture(h.n, h.value.toPrecision(3))));
    status(found.length + ' strangest images');
    draw();
  } catch (e) { status(e.message); }
});
$('copies').addEventListener('click', async () => {
  try {
    status('looking for copies');
    const groups = await get('/copies', 'json'), items = [];
    marked = new Set(groups.flat());
    groups.forEach((rows, g) => {
      const head = document.createElement('p');
      head.className = 'group';
      head.textContent = 'group ' + (g + 1);
      items.push(head, ...rows.map(n => picture(n, '')));
    });
    list(groups.length ? 'Copies' : 'No copies', items);
    status(groups.length + ' groups of copies');
    draw();
  } catch (e) { status(e.message); }
});
let waiting = 0;
$('find').addEventListener('input', () => {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const text = $('find').value;
    try {
      const found = text ? await get('/find?text=' + encodeURIComponent(text), 'json') : [];
      marked = new Set(found.map(h => h.n));
      list(found.length + ' files named so', found.map(h => picture(h.n, '')));
      draw();
    } catch (e) { status(e.message); }
  }, 200);
});
window.addEventListener('resize', resize);
(async () => {
  try {
    info = await get('/info', 'json');
    places = new Float32Array(await get('/map', 'arrayBuffer'));
    $('where').textContent = info.count + ' images of ' + info.folder;
    info.names.forEach((name, k) => {
      const s = document.createElement('span'), dot = document.createElement('i');
      dot.style.background = colours[k % colours.length];
      s.append(dot, document.createTextNode(name));
      $('legend').append(s);
    });
    view.scale = 0.95;
    status('drag to move, wheel to zoom, click for similar images');
    document.body.dataset.ready = 'yes';
    resize();
  } catch (e) { status(e.message); }
})();
