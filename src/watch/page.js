"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  // Everything that comes from a file goes in as text, never as markup.
  const make = (tag, name, parent, text) => {
    const e = document.createElement(tag);
    if (name) e.className = name;
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // --- words for numbers
  const show = (v, digits = 4) => {
    if (v === null || v === undefined || !Number.isFinite(v)) return "–";
    const size = Math.abs(v);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return v.toExponential(Math.min(2, digits - 1)).replace("e+", "e");
    return String(Number(v.toPrecision(digits)));
  };
  const count = (v) => {
    if (v === null || v === undefined) return "–";
    for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(v) >= unit) return show(v / unit, 3) + " " + name;
    return show(v, 3);
  };
  const time = (s) => {
    if (s === null || s === undefined) return "–";
    s = Math.round(s);
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + String(s % 60).padStart(2, "0") + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + String(Math.floor(s % 3600 / 60)).padStart(2, "0") + " min";
    return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
  };
  const clock = (s) => (s >= 86400 ? show(s / 86400, 3) + " d" : s >= 3600 ? show(s / 3600, 3) + " h" : s >= 60 ? show(s / 60, 3) + " min" : show(s, 3) + " s");
  const percent = (v) => (v === null || v === undefined ? "–" : (100 * v).toFixed(1) + " %");

  // --- what is known
  const runs = new Map();     // id -> status as the server last said
  const curves = new Map();   // id -> {generation, per, x, y}
  let details = new Map();    // id -> the same for the part that is zoomed into
  const configs = new Map();  // id -> {keys, defaults}
  let study = null;
  let shown = new Set(), chosen = false, focus = null;
  let zoom = null;            // [low, high] on the axis
  let heard = false, connected = false;
  const settings = { axis: "epoch", window: "1", smooth: 0, log: false, theme: "auto" };
  try {
    Object.assign(settings, JSON.parse(localStorage.getItem("ebclr.watch") ?? "{}"));
  } catch { /* settings are a convenience */ }
  const keep = () => {
    try { localStorage.setItem("ebclr.watch", JSON.stringify(settings)); } catch { /* private windows */ }
  };
  const colour = (id) => "var(--c" + (id % 10) + ")";
  const ink = (id) => css("--c" + (id % 10));
  const dash = (id) => [undefined, [2, 3], [9, 4], [9, 3, 2, 3]][Math.floor(id / 10) % 4];

  // --- theme
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => {
    document.documentElement.dataset.theme = settings.theme === "auto" ? (dark.matches ? "dark" : "light") : settings.theme;
    for (const c of charts.values()) c.drop();
    later();
  };

  // --- requests: one at a time for curves, answers that came too late are thrown away
  const get = async (path, signal = undefined) => {
    const reply = await fetch(path, { credentials: "same-origin", signal });
    if (!reply.ok) throw new Error(path + ": " + reply.status);
    return reply.json();
  };
  let asking = false, askAgain = false;
  const fetchCurves = async () => {
    if (asking) { askAgain = true; return; }
    asking = true;
    let failed = false;
    try {
      let ask = [];
      const most = shown.size > 24 ? 128 : shown.size > 8 ? 256 : 1024;
      for (const id of shown) {
        const r = runs.get(id), c = curves.get(id);
        if (!r || (c && c.version === r.version && c.most === most && !r.loading)) continue;
        ask.push([id, id + "." + (c ? c.generation + "." + c.per + "." + c.x.epoch.length : "0.0.0")]);
      }
      while (ask.length > 0) {
        const now = ask.slice(0, 50), got = await get("/series?most=" + most + "&ask=" + now.map(([, text]) => text).join(","));
        for (const part of got) takeCurves(part, most);
        later();
        // A long answer ends early, and the rest is asked for again; runs of which there is nothing at all are left alone.
        const have = new Set(got.map((part) => part.id));
        ask = got.length > 0 ? ask.filter(([id]) => !have.has(id)) : ask.slice(now.length);
      }
    } catch { failed = true; }
    asking = false;
    // A run that has ended has no next event that would ask again.
    if (failed && connected) setTimeout(fetchCurves, 3000);
    if (askAgain) { askAgain = false; setTimeout(fetchCurves, 250); }
  };
  const takeCurves = (part, most) => {
    const old = curves.get(part.id);
    if (part.from > 0 && old && old.generation === part.generation && old.per === part.per) {
      for (const k of Object.keys(part.x)) old.x[k].splice(part.from, Infinity, ...part.x[k]);
      for (const [name, columns] of Object.entries(part.y))
        for (const k of Object.keys(columns)) old.y[name][k].splice(part.from, Infinity, ...columns[k]);
      old.version = part.version;
      old.most = most;
    } else {
      curves.set(part.id, { ...part, most });
    }
  };
  let detailTimer = 0, detailAsked = null, detailOf = "";
  const fetchDetails = () => {
    clearTimeout(detailTimer);
    const part = zoom ? "&x=" + settings.axis + "&low=" + zoom[0] + "&high=" + zoom[1] : "";
    if (part !== detailOf) {
      detailOf = part;
      details = new Map();
      detailAsked?.stop.abort();  // the server reads files for it
      detailAsked = null;
    }
    if (!zoom) return;
    detailTimer = setTimeout(async () => {
      const ids = [...shown].filter((id) => (curves.get(id)?.per ?? 1) > 1).slice(0, 8);
      const path = "/detail?runs=" + ids.join(",") + part;
      if (ids.length === 0 || detailAsked?.path === path) return;
      detailAsked?.stop.abort();
      const mine = detailAsked = { path, stop: new AbortController() };
      try {
        const parts = await get(path, mine.stop.signal);
        if (detailAsked === mine) {
          for (const p of parts) if (p.x.epoch.length > 0) details.set(p.id, p);
          later();
        }
      } catch { /* the thinned curves stay */ }
      if (detailAsked === mine) detailAsked = null;
    }, 200);
  };

  // --- the list of runs
  const rank = { running: 0, starting: 1, "gave up": 2, stopped: 3, finished: 4 };
  const order = () => [...runs.values()].sort((a, b) => (rank[a.state] - rank[b.state]) || (b.updated - a.updated) || (a.id - b.id));
  const autoChoose = () => {
    if (chosen) return;
    const next = new Set(order().slice(0, 6).map((r) => r.id));
    if (next.size !== shown.size || [...next].some((id) => !shown.has(id))) shown = next;
    if (focus === null || !shown.has(focus)) focus = order()[0]?.id ?? null;
  };
  const rows = new Map();
  const share = (r) => (r.state === "finished" ? 1 : r.epochs ? Math.min(1, (r.epoch ?? 0) / r.epochs) : 0);
  const drawList = () => {
    const list = $("runs"), wanted = $("filter").value.toLowerCase();
    const sorted = order();
    $("count").textContent = runs.size === 1 ? "1 run" : shown.size + " of " + runs.size + " runs shown";
    sorted.forEach((r, place) => {
      let row = rows.get(r.id);
      if (!row) {
        const li = make("li", "run", list);
        li.dataset.run = r.id;
        li.style.setProperty("--c", colour(r.id));
        const box = make("input", "", li);
        box.type = "checkbox";
        const body = make("div", "", li);
        const name = make("button", "name", body);
        name.type = "button";
        const line = make("div", "line", body);
        const state = make("span", "state", line), far = make("span", "far", line);
        const meter = make("div", "meter", body);
        const fill = make("i", "", meter);
        row = { li, box, name, state, far, fill };
        rows.set(r.id, row);
        box.addEventListener("change", () => choose(r.id, box.checked));
        // A press on the row looks at this run; the box adds and removes.
        li.addEventListener("click", (e) => { if (e.target !== box) look(r.id); });
      }
      row.name.textContent = r.name;
      row.name.title = r.path;
      row.box.checked = shown.has(r.id);
      row.box.setAttribute("aria-label", "show " + r.name);
      row.state.className = "state " + r.state.replace(" ", "-");
      row.state.textContent = r.state;
      row.far.textContent = r.left !== null && r.left !== undefined ? time(r.left) + " left" : r.epoch === null ? "" : "epoch " + show(r.epoch, 3);
      row.fill.style.setProperty("--share", 100 * share(r) + "%");
      row.li.classList.toggle("focus", r.id === focus);
      row.li.classList.toggle("quiet", r.state !== "running");
      row.li.hidden = wanted !== "" && !(r.name + " " + r.method + " " + r.data + " " + r.state).toLowerCase().includes(wanted);
      if (list.children[place] !== row.li) list.insertBefore(row.li, list.children[place] ?? null);
    });
  };
  const choose = (id, on) => {
    chosen = true;
    if (on) shown.add(id); else shown.delete(id);
    if (on || focus === id) focus = on ? id : [...shown][0] ?? null;
    refresh();
  };
  const look = (id) => {
    chosen = true;
    if (!shown.has(id)) shown = new Set([id]);
    focus = id;
    refresh();
  };

  // --- tiles and notes of the run in focus
  const tile = (parent, name, value, below, tone) => {
    const box = make("div", tone ?? "", parent);
    make("dt", "", box, name);
    const dd = make("dd", "", box, value);
    if (below) make("small", "", dd, below);
    return box;
  };
  const drawNow = () => {
    const r = runs.get(focus);
    $("now").hidden = !r;
    if (!r) return;
    $("focus").textContent = r.name;
    const tiles = $("tiles"), last = r.last ?? {};
    tiles.textContent = "";
    const goal = r.epochs ? show(r.epoch ?? 0, 4) + " / " + r.epochs : show(r.epoch ?? 0, 4);
    let when = r.state;
    if (r.left !== null && r.left !== undefined) {
      const end = new Date(Date.now() + 1000 * r.left);
      const day = end.toDateString() === new Date().toDateString() ? "" : end.toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" }) + " ";
      when = time(r.left) + " left, done at " + day + end.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
    }
    const progress = tile(tiles, "Epoch", goal, when, "wide");
    progress.style.setProperty("--c", colour(r.id));
    const meter = make("div", "meter", progress);
    make("i", "", meter).style.setProperty("--share", 100 * share(r) + "%");
    tile(tiles, "Loss", show(last.loss), [r.method, r.data].filter(Boolean).join(" on "));
    for (const a of r.accuracy) {
      const best = Math.max(...a.accuracy);
      tile(tiles, a.judge, percent(a.accuracy.at(-1)), a.accuracy.length > 1 ? "best " + percent(best) : "first judgement");
    }
    if (last.energy_data !== undefined)
      tile(tiles, "Energy gap", show(last.gap, 3), "data " + show(last.energy_data, 3) + ", samples " + show(last.energy_samples, 3));
    if (last.images_per_second !== undefined) tile(tiles, "Speed", show(last.images_per_second, 3), "images per second");
    if (last.lr !== undefined) tile(tiles, "Learning rate", show(last.lr, 3), "batch " + (r.batch ?? "–"));
    if (r.seconds !== null) tile(tiles, "Trained for", time(r.seconds), count(r.units) + " forward-units");
    const falls = r.incidents.filter((i) => i.kind === "rollback").length;
    const warned = r.incidents.filter((i) => i.kind === "warning").length;
    tile(tiles, "Guard", falls === 0 ? "quiet" : falls + (falls === 1 ? " roll-back" : " roll-backs"),
      warned === 0 ? "no warnings" : warned + (warned === 1 ? " warning" : " warnings"), falls > 0 ? "bad" : warned > 0 ? "warn" : "");
    if (last.spread !== undefined)
      tile(tiles, "Spread", show(last.spread, 3), r.collapse ? "collapse below " + show(r.collapse, 2) : "of the projections", last.spread < r.collapse ? "bad" : "");
    if (last.out_of_range !== undefined)
      tile(tiles, "Out of range", percent(last.out_of_range), "of the samples' pixels", last.out_of_range > 0.5 ? "warn" : "");

    const notes = $("notes");
    notes.textContent = "";
    if (r.why) {
      const n = make("div", "note" + (r.state === "gave up" ? " bad" : ""), notes);
      make("span", "", n, r.state === "gave up" ? "The guard gave up: " + r.why : r.why);
      if (r.resume) {
        make("span", "", n, "Continue with");
        make("code", "", n, r.resume);
        const copy = make("button", "copy", n, "copy");
        copy.type = "button";
        copy.addEventListener("click", () => navigator.clipboard?.writeText(r.resume).then(() => { copy.textContent = "copied"; }, () => {}));
      }
    }
    if (r.problem) make("div", "note", notes, "config.yaml cannot be read: " + r.problem);
    if (r.more_metrics) make("div", "note", notes, "it has more metrics than are shown: the first 256 are.");
    if (r.damaged > 0) make("div", "note", notes, r.damaged + " damaged lines of metrics.jsonl were left out.");
  };

  // --- curves
  const known = [
    { key: "accuracy", title: "Accuracy", small: "%" },
    { key: "loss", title: "Loss" },
    { key: "energy", title: "Energy", small: "data solid, samples dashed", lines: [["energy_data", "data"], ["energy_samples", "samples", [6, 4]]] },
    { key: "gap", title: "Energy gap", small: "samples minus data" },
    { key: "images_per_second", title: "Speed", small: "images per second" },
    { key: "lr", title: "Learning rate" },
    { key: "grad_norm", title: "Gradient norm" },
    { key: "spread", title: "Spread of projections", small: "deviation per dimension" },
    { key: "output_norm", title: "Output norm", small: "before the unit sphere" },
    { key: "out_of_range", title: "Samples out of range", small: "% of pixels", factor: 100 },
    { key: "disc", title: "Contrastive term" },
    { key: "chain_age", title: "Age of chains", small: "visits" },
    // These are worth a chart only where they change.
    { key: "sgld_steps", title: "Langevin steps", small: "per visit", quiet: true },
    { key: "step_size", title: "Langevin step size", quiet: true },
    { key: "lambda", title: "Weight of the energy term", quiet: true },
    { key: "momentum", title: "Momentum of the target", quiet: true },
  ];
  const parts = new Set(["energy_data", "energy_samples"]);
  const charts = new Map();

  const smoothed = (values) => {
    if (settings.smooth === 0) return values;
    const out = new Array(values.length);
    let mean = 0, weight = 0;
    for (let i = 0; i < values.length; ++i) {
      const v = values[i];
      if (v === null) { out[i] = null; continue; }
      mean = settings.smooth * mean + (1 - settings.smooth) * v;
      weight = settings.smooth * weight + (1 - settings.smooth);
      out[i] = mean / weight;
    }
    return out;
  };
  // Lines of a chart: {id, label, dash, x, y, low, high, raw}; a run's own points, not yet on a common axis.
  const linesOf = (def) => {
    const out = [], axis = settings.axis, many = shown.size > 1;
    // The run in focus is drawn last, over the others.
    for (const id of [...shown].sort((a, b) => (a === focus) - (b === focus) || a - b)) {
      const r = runs.get(id);
      if (!r) continue;
      if (def.key === "accuracy") {
        r.accuracy.forEach((a, k) => out.push({
          id, label: (many ? r.name + (r.accuracy.length > 1 ? ", " : "") : "") + (many && r.accuracy.length === 1 ? "" : a.judge),
          dash: k === 0 ? dash(id) : [6, 4], x: a[axis], y: a.accuracy.map((v) => 100 * v), points: true,
        }));
        continue;
      }
      const c = (zoom && details.get(id)) || curves.get(id);
      if (!c) continue;
      for (const [key, label, style] of def.lines ?? [[def.key, ""]]) {
        const column = c.y[key];
        if (!column) continue;
        const f = def.factor ?? 1;
        const scale = (list) => (f === 1 || !list ? list : list.map((v) => (v === null ? null : v * f)));
        const raw = scale(column.mean);
        out.push({
          id, label: many ? r.name + (label ? ", " + label : "") : label || def.title, dash: style ?? dash(id), x: c.x[axis],
          y: smoothed(raw), raw: settings.smooth > 0 ? raw : null, low: def.lines ? null : scale(column.low), high: scale(column.high),
          points: raw.length <= 30,
        });
      }
    }
    return out;
  };
  const extent = () => {
    let low = Infinity, high = -Infinity;
    for (const id of shown) {
      const x = curves.get(id)?.x[settings.axis];
      if (!x || x.length === 0) continue;
      low = Math.min(low, x[0]);
      high = Math.max(high, x[x.length - 1]);
    }
    return low <= high ? [low, high] : null;
  };
  const view = () => {
    if (zoom) return zoom;
    const all = extent();
    if (!all || settings.window === "1") return null;
    return [all[1] - Number(settings.window) * (all[1] - all[0]), all[1]];
  };
  // A common axis for all lines: their own points when those are few, else as many as a screen has columns.
  const commonAxis = (lines, range) => {
    const seen = new Set(), few = lines.length > 12 ? 600 : 1600;
    let low = Infinity, high = -Infinity;
    for (const l of lines) for (const v of l.x) {
      if (v === null || (range && (v < range[0] || v > range[1]))) continue;
      if (seen.size <= few) seen.add(v);
      if (v < low) low = v;
      if (v > high) high = v;
    }
    if (seen.size <= few) return Float64Array.from(seen).sort();
    const columns = lines.length > 12 ? 500 : 1200;
    return Float64Array.from({ length: columns }, (_, i) => low + (high - low) * i / (columns - 1));
  };
  const onto = (axis, xs, ys) => {
    const out = new Array(axis.length).fill(null);
    let k = 0;
    for (let i = 0; i < axis.length; ++i) {
      const x = axis[i];
      while (k + 1 < xs.length && xs[k + 1] <= x) ++k;
      if (xs.length === 0 || x < xs[0] || x > xs[xs.length - 1]) continue;
      const a = ys[k], b = k + 1 < xs.length ? ys[k + 1] : null;
      if (a === null) continue;
      out[i] = b === null || xs[k] === x || xs[k + 1] === xs[k] ? (xs[k] === x || k + 1 >= xs.length ? a : null) : a + (b - a) * (x - xs[k]) / (xs[k + 1] - xs[k]);
    }
    return out;
  };

  const axisWord = () => ({ epoch: "epoch", seconds: "time", units: "forward-units" })[settings.axis];
  const axisValue = (v) => (settings.axis === "seconds" ? clock(v) : settings.axis === "units" ? count(v) : show(v, 4));

  const makeChart = (def) => {
    const figure = make("figure", "chart", $("charts"));
    figure.dataset.chart = def.key;
    const caption = make("figcaption", "", figure, def.title);
    if (def.small) make("small", "", caption, def.small);
    const box = make("div", "plot", figure);
    const tip = make("div", "tip", figure);
    tip.hidden = true;
    const said = make("p", "unseen", figure);
    let plot = null, lines = [], form = "", visible = true, stale = true;
    const chart = { figure, def };

    const readOut = (u) => {
      const { left, top, idx } = u.cursor;
      if (idx === null || idx === undefined || left < 0) { tip.hidden = true; return; }
      const x = u.data[0][idx];
      const list = lines.map((l, k) => ({ l, v: u.data[k + 1][idx] })).filter((e) => e.v !== null && e.v !== undefined);
      if (list.length === 0) { tip.hidden = true; return; }
      const at = u.posToVal(top, "y");
      const near = list.reduce((a, b) => (Math.abs(b.v - at) < Math.abs(a.v - at) ? b : a));
      list.sort((a, b) => b.v - a.v);
      // Of many, those around the pointer.
      const from = Math.max(0, Math.min(list.indexOf(near) - 5, list.length - 11));
      tip.textContent = "";
      make("div", "at", tip, axisWord() + " " + axisValue(x));
      for (const e of list.slice(from, from + 11)) {
        const row = make("div", e === near && list.length > 1 ? "near" : "", tip);
        make("i", "", row).style.setProperty("--c", colour(e.l.id));
        make("span", "", row, e.l.label);
        make("b", "", row, show(e.v, 4));
      }
      if (list.length > 11) make("div", "at", tip, list.length - 11 + " more");
      tip.hidden = false;
      const inside = figure.clientWidth, offset = box.offsetLeft + u.over.offsetLeft;
      const place = offset + left + 14 + tip.offsetWidth > inside ? offset + left - 14 - tip.offsetWidth : offset + left + 14;
      tip.style.left = Math.max(0, Math.min(place, inside - tip.offsetWidth)) + "px";
      tip.style.top = box.offsetTop + 8 + "px";
    };
    // Behind the lines: the range of each bucket, and what the smoothing left out.
    const backing = (u) => {
      if (lines.length > 3) return;
      const { ctx } = u, { left, top, width, height } = u.bbox;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, top, width, height);
      ctx.clip();
      const px = (v) => u.valToPos(v, "x", true), py = (v) => u.valToPos(v, "y", true);
      const fits = (v) => v !== null && v !== undefined && !(settings.log && v <= 0);
      for (const l of lines) {
        if (l.low && l.high) {
          ctx.fillStyle = ink(l.id);
          ctx.globalAlpha = 0.16;
          ctx.beginPath();
          let open = [];
          const close = () => {
            if (open.length > 1) {
              open.forEach((i, k) => (k === 0 ? ctx.moveTo(px(l.x[i]), py(l.high[i])) : ctx.lineTo(px(l.x[i]), py(l.high[i]))));
              for (const i of open.reverse()) ctx.lineTo(px(l.x[i]), py(l.low[i]));
              ctx.closePath();
            }
            open = [];
          };
          for (let i = 0; i < l.x.length; ++i) if (fits(l.low[i]) && fits(l.high[i])) open.push(i); else close();
          close();
          ctx.fill();
        }
        if (l.raw) {
          ctx.strokeStyle = ink(l.id);
          ctx.globalAlpha = 0.28;
          ctx.lineWidth = devicePixelRatio;
          ctx.beginPath();
          let pen = false;
          for (let i = 0; i < l.x.length; ++i) {
            if (!fits(l.raw[i])) { pen = false; continue; }
            if (pen) ctx.lineTo(px(l.x[i]), py(l.raw[i])); else ctx.moveTo(px(l.x[i]), py(l.raw[i]));
            pen = true;
          }
          ctx.stroke();
        }
      }
      ctx.restore();
    };
    const build = (data) => {
      chart.drop();
      const crowd = lines.length > 12;
      const soft = css("--soft"), faint = css("--faint");
      const font = "12px " + getComputedStyle(document.body).fontFamily;
      plot = new uPlot({
        width: Math.max(60, box.clientWidth), height: Math.max(60, box.clientHeight),
        legend: { show: false },
        padding: [10, 12, 0, 0],
        cursor: {
          sync: { key: "ebclr", setSeries: false, scales: ["x", null] }, points: { size: 7 },
          drag: { x: true, y: false, setScale: false, dist: 5 },
        },
        scales: {
          x: { time: false, range: (u, low, high) => view() ?? (low === high ? [low - 0.5, high + 0.5] : [low, high]) },
          y: { distr: settings.log ? 3 : 1, range: settings.log ? undefined : (u, low, high) => {
            if (low === null || low === undefined) return [0, 1];
            const pad = (high - low || Math.abs(high) || 1) * 0.08;
            return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
          } },
        },
        axes: [
          { stroke: soft, font, size: 30, gap: 4, grid: { stroke: faint, width: 1 }, ticks: { show: false }, space: 60, values: (u, list) => list.map(axisValue) },
          { stroke: soft, font, size: 54, gap: 6, grid: { stroke: faint, width: 1 }, ticks: { show: false }, values: (u, list) => list.map((v) => (v === null ? "" : Math.abs(v) >= 1e4 ? count(v) : show(v, 3))) },
        ],
        series: [{}, ...lines.map((l) => ({
          // Of a crowd, the run in focus stands out; dashes of many lines cost more time than they tell.
          label: l.label, stroke: ink(l.id), spanGaps: false, alpha: crowd && l.id !== focus ? 0.5 : 1,
          width: l.id === focus && shown.size > 1 ? 2.3 : crowd ? 1 : 1.6, dash: crowd ? undefined : l.dash,
          points: l.points ? { size: 6, fill: ink(l.id), stroke: ink(l.id), filter: own } : { show: false },
        }))],
        hooks: {
          drawAxes: [backing],
          draw: [(u) => { figure.dataset.range = u.scales.x.min + " " + u.scales.x.max; }],
          setCursor: [readOut],
          setSelect: [(u) => {
            if (u.select.width < 5) return;
            zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          }],
        },
      }, data, box);
      plot.over.addEventListener("dblclick", () => zoomTo(null));
      plot.over.addEventListener("pointerleave", () => { tip.hidden = true; });
    };
    // Dots stand where a line has points of its own, not where it was put onto the common axis.
    const own = (u, k) => {
      const mine = new Set(lines[k - 1].x), out = [];
      for (let i = 0; i < u.data[0].length; ++i) if (mine.has(u.data[0][i]) && u.data[k][i] !== null) out.push(i);
      return out;
    };
    chart.drop = () => { plot?.destroy(); plot = null; tip.hidden = true; stale = true; };
    chart.draw = () => {
      stale = true;
      if (!visible) return;
      lines = linesOf(def);
      figure.hidden = lines.length === 0;
      if (figure.hidden) { chart.drop(); return; }
      const axis = commonAxis(lines, view());
      const data = [axis, ...lines.map((l) => {
        const y = onto(axis, l.x, l.y);
        return settings.log ? y.map((v) => (v !== null && v <= 0 ? null : v)) : y;
      })];
      const now = JSON.stringify([settings.log, settings.axis, focus, lines.map((l) => [l.id, l.label, l.points])]);
      if (!plot || now !== form) { form = now; build(data); } else plot.setData(data);
      // What the picture says, for those who do not see it, and for tests.
      said.textContent = lines.slice(0, 12).map((l) => l.label + ": " + show(l.y.findLast((v) => v !== null) ?? null)).join("; ");
      figure.dataset.points = data.slice(1).reduce((n, y) => n + y.filter((v) => v !== null).length, 0);
      stale = false;
    };
    new ResizeObserver(() => { if (plot && box.clientWidth > 0) plot.setSize({ width: box.clientWidth, height: box.clientHeight }); }).observe(box);
    // Only what can be seen is drawn.
    new IntersectionObserver((entries) => {
      visible = entries.at(-1).isIntersecting;
      if (visible && stale) chart.draw();
    }, { rootMargin: "300px" }).observe(figure);
    return chart;
  };
  const drawCharts = () => {
    const keys = new Set();
    for (const id of shown) for (const k of Object.keys(curves.get(id)?.y ?? {})) if (!parts.has(k)) keys.add(k);
    if ([...shown].some((id) => runs.get(id)?.accuracy.length > 0)) keys.add("accuracy");
    if ([...shown].some((id) => curves.get(id)?.y.energy_data)) keys.add("energy");
    const still = (key) => [...shown].every((id) => {
      const values = curves.get(id)?.y[key]?.mean ?? [];
      return values.every((v) => v === null || v === values[0]);
    });
    const wanted = [...known.filter((d) => keys.has(d.key) && !(d.quiet && still(d.key))), ...[...keys].filter((k) => !known.some((d) => d.key === k)).sort().map((k) => ({ key: k, title: k }))];
    for (const [key, chart] of charts) chart.figure.hidden = !wanted.some((d) => d.key === key);
    wanted.forEach((def, place) => {
      let chart = charts.get(def.key);
      if (!chart) charts.set(def.key, chart = makeChart(def));
      const at = $("charts").children[place];
      if (at !== chart.figure) $("charts").insertBefore(chart.figure, at ?? null);
      chart.draw();
    });
    $("curves").hidden = wanted.length === 0;
  };
  const zoomTo = (range) => {
    zoom = range;
    if (range) { settings.window = "1"; press("window", "1"); }
    $("unzoom").hidden = !range;
    fetchDetails();
    later();
  };

  // --- side by side
  const table = (parent, columns, lines) => {
    const t = make("table", "", parent), head = make("tr", "", make("thead", "", t));
    for (const c of columns) make("th", c.n ? "n" : "", head, c.text ?? c).scope = "col";
    const body = make("tbody", "", t);
    for (const line of lines) {
      const row = make("tr", "", body);
      line.forEach((cell, k) => {
        const e = make(k === 0 ? "th" : "td", (cell?.name ?? "") + (columns[k]?.n ? " n" : ""), row, cell?.text ?? cell);
        if (k === 0) e.scope = "row";
        if (cell?.swatch !== undefined) {
          const dot = make("i", "swatch");
          dot.style.setProperty("--c", colour(cell.swatch));
          e.prepend(dot, " ");
        }
      });
    }
    return t;
  };
  const drawCompare = () => {
    const list = order().filter((r) => shown.has(r.id));
    $("table").hidden = list.length < 2;
    if (list.length < 2) return;
    const box = $("compare");
    box.textContent = "";
    const judges = [...new Set(list.flatMap((r) => r.accuracy.map((a) => a.judge)))];
    const n = (text) => ({ text, n: true });
    table(box, ["run", "state", n("epoch"), n("loss"), ...judges.map(n), n("energy gap"), n("images/s"), n("time"), n("forward-units"), n("left")],
      list.slice(0, 100).map((r) => [
        { text: r.name, swatch: r.id }, { text: r.state, name: "state " + r.state.replace(" ", "-") }, show(r.epoch, 4), show(r.last.loss),
        ...judges.map((j) => percent(r.accuracy.find((a) => a.judge === j)?.accuracy.at(-1))),
        show(r.last.gap, 3), show(r.last.images_per_second, 3), time(r.seconds), count(r.units), time(r.left),
      ]));
  };

  // --- chains: one slider over the epochs of all shown runs; at its end it follows the newest
  let following = true;
  const pictures = new Map();
  const drawChains = () => {
    const list = [...shown].map((id) => runs.get(id)).filter((r) => r && r.samples.length > 0);
    if (focus !== null) list.sort((a, b) => (b.id === focus) - (a.id === focus));
    list.length = Math.min(list.length, 4);
    $("chains").hidden = list.length === 0;
    const epochs = [...new Set(list.flatMap((r) => r.samples))].sort((a, b) => a - b);
    const slider = $("epoch");
    const before = epochs[Number(slider.value)];
    slider.max = Math.max(0, epochs.length - 1);
    slider.disabled = epochs.length < 2;
    if (following) slider.value = slider.max; else if (before !== undefined && !epochs.includes(before)) slider.value = slider.max;
    const at = epochs[Number(slider.value)];
    $("at").textContent = at ?? "";
    for (const [id, p] of pictures) if (!list.some((r) => r.id === id)) { p.figure.remove(); pictures.delete(id); }
    for (const r of list) {
      let p = pictures.get(r.id);
      if (!p) {
        const figure = make("figure", "", $("pictures"));
        p = { figure, img: make("img", "", figure), caption: make("figcaption", "", figure), source: "" };
        pictures.set(r.id, p);
      }
      const epoch = r.samples.findLast((e) => e <= at) ?? r.samples[0];
      const source = "/sample?run=" + r.id + "&epoch=" + epoch;
      if (p.source !== source) { p.source = source; p.img.src = source; }
      p.img.alt = "Chains of " + r.name + " after epoch " + epoch;
      p.caption.textContent = r.name + ", epoch " + epoch;
    }
  };
  $("epoch").addEventListener("input", () => {
    following = $("epoch").value === $("epoch").max;
    drawChains();
  });

  // --- health, configuration, log
  const drawHealth = () => {
    const all = [];
    for (const id of shown) for (const i of runs.get(id)?.incidents ?? []) all.push([runs.get(id), i]);
    $("health").hidden = all.length === 0;
    const box = $("incidents");
    box.textContent = "";
    const list = make("ul", "", box);
    for (const [r, i] of all.slice(-30)) {
      const what = i.kind === "rollback" ? "rolled back at step " + i.step + ": " : i.kind === "gave_up" ? "gave up at step " + i.step + ": " : "";
      make("li", "", list, (shown.size > 1 ? r.name + ": " : "") + what + i.text);
    }
  };
  let configFor = "";
  const drawConfig = async () => {
    const ids = [...shown].filter((id) => runs.has(id)).sort((a, b) => a - b).slice(0, 12);
    $("config").hidden = ids.length === 0;
    const want = ids.join(",");
    if (want === configFor || ids.length === 0) return;
    configFor = want;
    const missing = ids.filter((id) => !configs.has(id));
    try {
      if (missing.length > 0) for (const c of await get("/config?runs=" + missing.join(","))) configs.set(c.id, c);
    } catch { configFor = ""; return; }
    if (want !== configFor) return;
    const box = $("keys"), all = ids.map((id) => configs.get(id)).filter(Boolean);
    box.textContent = "";
    const keys = [...new Set(all.flatMap((c) => Object.keys(c.keys)))];
    const wide = (text) => ({ text, name: text.length > 40 ? "long" : "" });
    if (all.length === 1) {
      const c = all[0], changed = Object.keys(c.defaults);
      make("p", "soft", box, changed.length > 0 ? "What differs from the defaults of the method." : "All values are defaults.");
      if (changed.length > 0) table(box, ["key", "this run", "default"], changed.map((k) => [k, wide(c.keys[k]), { text: c.defaults[k] || "(empty)", name: "same" }]));
    } else {
      const differ = keys.filter((k) => new Set(all.map((c) => c.keys[k])).size > 1);
      make("p", "soft", box, differ.length > 0 ? "Keys whose values differ between the runs shown." : "The runs shown have the same configuration.");
      if (differ.length > 0)
        table(box, ["key", ...all.map((c) => runs.get(c.id)?.name ?? c.id)], differ.map((k) => [k, ...all.map((c) => wide(c.keys[k] ?? ""))]));
    }
    const more = make("details", "more", box);
    make("summary", "", more, "all keys of " + (runs.get(focus)?.name ?? ""));
    const own = configs.get(focus) ?? all[0];
    table(make("div", "scroll", more), ["key", "value"], Object.entries(own?.keys ?? {}).map(([k, v]) => [k, wide(v)]));
  };
  let logFor = "";
  const drawLog = async () => {
    const r = runs.get(focus);
    $("words").hidden = !r || r.log === 0;
    const want = r ? r.id + " " + r.log : "";
    if (!r || want === logFor) return;
    logFor = want;
    try {
      const { lines } = await get("/log?run=" + r.id);
      if (want !== logFor) return;
      const pre = $("tail"), end = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8 || pre.textContent === "";
      pre.textContent = "";
      for (const line of lines) make("span", line.includes("  warning: ") ? "warning" : "", pre, line + "\n");
      if (end) pre.scrollTop = pre.scrollHeight;
    } catch { logFor = ""; }
  };

  // --- a study
  const drawStudy = () => {
    $("study").hidden = !study;
    if (!study) return;
    const box = $("plan"), s = study;
    box.textContent = "";
    const head = make("div", "plan-head", box);
    make("strong", "", head, s.title);
    const n = (state) => s.runs.filter((r) => r.state === state).length;
    make("span", "", head, "scale " + s.scale);
    make("span", "", head, n("done") + " of " + s.runs.length + " runs done" + (n("failed") ? ", " + n("failed") + " failed" : "") + (n("blocked") ? ", " + n("blocked") + " cannot run" : ""));
    make("span", "", head, s.left === null ? (s.share < 1 ? "estimating the time left" : "done") : time(s.left) + " left");
    const meter = make("div", "meter", box);
    make("i", "", meter).style.setProperty("--share", 100 * s.share + "%");
    if (s.rows.length > 0) {
      const scroll = make("div", "scroll", box), t = make("table", "cells", scroll), top = make("tr", "", make("thead", "", t));
      make("th", "", top, "").scope = "col";
      const columns = s.columns.length > 0 ? s.columns : [""];
      for (const c of columns) make("th", "", top, c || "result").scope = "col";
      const body = make("tbody", "", t);
      for (const row of s.rows) {
        const tr = make("tr", "", body);
        make("th", "", tr, row).scope = "row";
        for (const column of columns) {
          const c = s.cells.find((x) => x.row === row && x.column === column);
          const td = make("td", !c ? "" : c.failed > 0 ? "failed" : c.done === c.runs ? "full" : c.done > 0 ? "part" : "", tr,
            !c ? "" : c.failed > 0 ? "failed" : c.score || (c.done > 0 ? c.done + " of " + c.runs : "·"));
          if (c) td.style.setProperty("--share", 100 * c.done / Math.max(1, c.runs) + "%");
          if (c) td.title = c.done + " of " + c.runs + " runs done";
        }
      }
    }
    const busy = s.runs.filter((r) => r.state === "running" || r.state === "failed");
    if (busy.length > 0)
      table(make("div", "scroll", box), ["now", "state", "doing", { text: "done", n: true }], busy.map((r) => [r.title, { text: r.state, name: "state " + r.state }, r.doing, percent(r.share)]));
    const more = make("details", "more", box);
    make("summary", "", more, "all runs of the plan");
    table(make("div", "scroll", more), ["run", "state", { text: "done", n: true }], s.runs.map((r) => [r.title, { text: r.state, name: "state " + r.state }, percent(r.share)]));
    more.open = drawStudy.open === true;
    more.addEventListener("toggle", () => { drawStudy.open = more.open; });
  };

  // --- drawing: at most once a frame, and not while nobody can see it
  let planned = false;
  const later = () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      drawList();
      drawNow();
      drawCharts();
      drawCompare();
      drawChains();
      drawHealth();
      drawConfig();
      drawLog();
      $("empty").hidden = !heard || runs.size > 0 || study !== null || !$("partial").hidden;
      const r = runs.get(focus);
      document.title = r ? (r.state === "running" && r.epochs ? Math.floor(100 * share(r)) + " % · " : "") + r.name + " · ebclr" : "ebclr";
      document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
    });
  };
  const refresh = () => { later(); fetchCurves(); if (zoom) fetchDetails(); };

  // --- events
  const live = (name, text) => { $("live").className = "live " + name; $("live").lastElementChild.textContent = text; };
  const forget = (id) => {
    if (!runs.delete(id)) return;
    for (const kept of [curves, details, configs]) kept.delete(id);
    rows.get(id)?.li.remove();
    rows.delete(id);
    shown.delete(id);
    if (shown.size === 0) chosen = false;
    if (focus === id) focus = [...shown][0] ?? null;
    configFor = logFor = "";  // it may come back
  };
  const hear = (message) => {
    heard = true;
    for (const r of message.runs) {
      if (r.state === "gone") { forget(r.id); continue; }
      const old = runs.get(r.id);
      if (old && old.path !== r.path) { location.reload(); return; }  // another server took this one's place
      if (old && old.version > r.version) curves.delete(r.id);
      runs.set(r.id, r);
    }
    if (message.study !== undefined) { study = message.study; drawStudy(); }
    if (message.truncated !== undefined) $("partial").hidden = !message.truncated;
    autoChoose();
    if (!document.hidden) refresh();
  };
  let source = null, again = 0;
  const connect = () => {
    clearTimeout(again);
    if (source || document.hidden) return;
    const s = source = new EventSource("/events");
    s.addEventListener("open", () => { connected = true; live("on", "live"); });
    s.addEventListener("error", () => {
      if (source !== s) return;
      connected = false;
      live("off", "not connected; trying again");
      if (s.readyState === EventSource.CLOSED) { source = null; refused(); }
    });
    s.addEventListener("message", (e) => { if (source === s) { live("on", "live"); hear(JSON.parse(e.data)); } });
  };
  // The browser tries again by itself when a connection is lost, not when it is refused; nor does it say why.
  const refused = async () => {
    let why = "Not connected.";
    const look = new AbortController();
    try {
      const reply = await fetch("/events", { credentials: "same-origin", signal: look.signal });
      if (!reply.ok) why = (await reply.text()).trim();
    } catch { /* nobody there */ }
    look.abort();
    if (source || document.hidden) return;
    live("off", why + " Trying again.");
    again = setTimeout(connect, 5000);
  };
  // A browser has six connections for one server: tabs that nobody sees give theirs back.
  const attend = () => {
    if (!document.hidden) {
      if (!source) live("", "connecting");
      connect();
      refresh();
      return;
    }
    clearTimeout(again);
    source?.close();
    source = null;
    connected = false;
    live("", "paused");
  };
  document.addEventListener("visibilitychange", attend);

  // --- controls
  const press = (id, value) => { for (const b of $(id).querySelectorAll("button")) b.setAttribute("aria-pressed", String(b.dataset.value === value)); };
  const choice = (id, then) => {
    press(id, settings[id]);
    $(id).addEventListener("click", (e) => {
      const value = e.target.dataset?.value;
      if (value === undefined) return;
      settings[id] = value;
      press(id, value);
      keep();
      then();
    });
  };
  choice("axis", () => { zoomTo(null); });
  choice("window", () => { zoomTo(null); });
  choice("theme", paint);
  $("smooth").value = settings.smooth;
  $("smooth").addEventListener("input", () => { settings.smooth = Number($("smooth").value); keep(); later(); });
  $("log").checked = settings.log;
  $("log").addEventListener("change", () => { settings.log = $("log").checked; keep(); later(); });
  $("unzoom").addEventListener("click", () => zoomTo(null));
  addEventListener("keydown", (e) => { if (e.key === "Escape" && zoom) zoomTo(null); });
  $("filter").addEventListener("input", drawList);
  $("all").addEventListener("click", () => {
    chosen = true;
    for (const r of runs.values()) if (!rows.get(r.id)?.li.hidden) shown.add(r.id);
    focus ??= [...shown][0] ?? null;
    refresh();
  });
  $("none").addEventListener("click", () => { chosen = true; shown.clear(); focus = null; refresh(); });
  dark.addEventListener("change", paint);
  if (matchMedia("(max-width: 52rem)").matches) $("list").open = false;
  get("/about").then((a) => { $("where").textContent = a.title; }).catch(() => {});
  paint();
  attend();
})();
