"use strict";
(() => {
  // The page is complete without this; here are the read-outs, the copy buttons and what printing needs.
  const make = (tag, name, parent, text) => {
    const e = document.createElement(tag);
    if (name) e.className = name;
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };
  const show = (v) => {
    if (v === null) return "-";
    const size = Math.abs(v);
    if (size !== 0 && (size >= 1e7 || size < 1e-4)) return v.toExponential(3);
    return String(Number(v.toPrecision(5)));
  };
  const place = (v, [low, high, log]) =>
    log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low);

  // Something to point at: pointer, touch, and arrow keys once it has the focus.
  const pointing = (area, find, step, clear) => {
    area.addEventListener("pointermove", (e) => find(e));
    area.addEventListener("pointerdown", (e) => find(e));
    area.addEventListener("pointerleave", (e) => { if (e.pointerType !== "touch") clear(); });
    area.addEventListener("blur", clear);
    area.addEventListener("keydown", (e) => {
      const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[e.key];
      if (e.key === "Escape") return clear();
      if (by === undefined) return;
      e.preventDefault();
      step(by);
    });
    document.addEventListener("pointerdown", (e) => { if (!area.contains(e.target)) clear(); });
  };

  for (const figure of document.querySelectorAll(".chart")) {
    const area = figure.querySelector(".area");
    const source = figure.querySelector("script");
    if (!area || !source) continue;
    const data = JSON.parse(source.textContent);
    const groups = area.querySelectorAll("svg > g");
    const all = [...new Set(data.series.flatMap((s) => s.x.filter((v) => v !== null)))].sort((a, b) => a - b);
    let parts = [], current = -1;
    const clear = () => { parts.forEach((p) => p.remove()); parts = []; current = -1; };
    const at = (index) => {
      clear();
      current = index;
      const x = all[index], across = place(x, data.ax);
      const cross = make("div", "cross", area);
      cross.style.left = 100 * across + "%";
      const tip = make("div", "tip", area);
      tip.setAttribute("role", "status");
      make("div", "at", tip, (data.x ? data.x + " " : "") + show(x));
      parts = [cross, tip];
      data.series.forEach((s) => {
        // The nearest point of each line, unless the line is not there.
        let best = -1, gap = 0.03;
        s.x.forEach((v, i) => {
          if (v === null || s.y[i] === null) return;
          const d = Math.abs(place(v, data.ax) - across);
          if (d < gap) { gap = d; best = i; }
        });
        if (best < 0) return;
        const row = make("div", "", tip);
        make("i", "c" + s.c, row);
        make("span", "", row, s.name);
        let text = show(s.y[best]);
        if (s.low && s.low[best] !== null && s.low[best] !== s.high[best]) {
          text += " (" + show(s.low[best]) + " \u2013 " + show(s.high[best]) + ")";
        }
        make("b", "", row, text);
        const spot = make("div", "spot c" + s.c, area);
        spot.style.left = 100 * place(s.x[best], data.ax) + "%";
        spot.style.top = 100 * (1 - place(s.y[best], data.ay)) + "%";
        parts.push(spot);
      });
      // Slides along with its line and thus never leaves the chart.
      tip.style.left = 100 * across + "%";
      tip.style.transform = "translateX(" + -100 * across + "%)";
    };
    const find = (e) => {
      const box = area.getBoundingClientRect();
      const across = (e.clientX - box.left) / box.width;
      let best = 0;
      all.forEach((x, i) => {
        if (Math.abs(place(x, data.ax) - across) < Math.abs(place(all[best], data.ax) - across)) best = i;
      });
      if (all.length) at(best);
    };
    pointing(area, find, (by) => {
      if (all.length) at(Math.min(all.length - 1, Math.max(0, (current < 0 && by < 0 ? all.length : current) + by)));
    }, clear);
    // Pointing at a name in the legend brings out its line.
    figure.querySelectorAll(".legend li").forEach((item, k) => {
      const fade = (on) => groups.forEach((g, i) => g.classList.toggle("faded", on && i !== k));
      item.addEventListener("pointerenter", () => fade(true));
      item.addEventListener("pointerleave", () => fade(false));
    });
  }

  for (const figure of document.querySelectorAll(".map")) {
    const area = figure.querySelector(".area");
    const source = figure.querySelector("script");
    if (!area || !source) continue;
    const data = JSON.parse(source.textContent);
    const sprite = figure.querySelector(".sprite");
    const [tw, th, columns] = (area.dataset.tile || "0,0,0").split(",").map(Number);
    const layers = area.querySelectorAll("svg > path");
    // Without labels there is no colour to look at: the images themselves take the place of the dots.
    if (sprite && tw && data.names.length === 1) {
      const picture = make("canvas", "tiles", area), pixels = picture.getContext("2d");
      const scale = 2;  // sharp on fine screens too
      picture.width = scale * data.w;
      picture.height = scale * data.h;
      const draw = () => {
        area.classList.add("tiled");
        data.points.forEach((p, i) => {
          if (p) pixels.drawImage(sprite, (i % columns) * tw, Math.floor(i / columns) * th, tw, th,
            scale * (p[0] - tw / 2), scale * (p[1] - th / 2), scale * tw, scale * th);
        });
      };
      if (sprite.complete) draw(); else sprite.addEventListener("load", draw);
    }
    let parts = [], current = -1;
    const clear = () => { parts.forEach((p) => p.remove()); parts = []; current = -1; };
    const at = (index) => {
      if (index === current) return;
      clear();
      current = index;
      const [x, y, group, note] = data.points[index];
      const ring = make("div", "ring", area), tip = make("div", "tip", area);
      tip.setAttribute("role", "status");
      ring.style.left = 100 * x / data.w + "%";
      ring.style.top = 100 * y / data.h + "%";
      if (sprite && tw) {
        const thumb = make("div", "thumb", tip), zoom = 84 / Math.max(tw, th);
        thumb.style.width = tw * zoom + "px";
        thumb.style.height = th * zoom + "px";
        thumb.style.backgroundImage = "url(" + sprite.src + ")";
        thumb.style.backgroundSize = columns * tw * zoom + "px auto";
        thumb.style.backgroundPosition =
          -(index % columns) * tw * zoom + "px " + -Math.floor(index / columns) * th * zoom + "px";
      }
      make("div", "", tip, data.names[group]).style.justifyContent = "center";
      if (note) make("div", "at", tip, note).style.justifyContent = "center";
      tip.style.left = 100 * x / data.w + "%";
      const below = y < data.h / 2;
      tip.style.top = 100 * y / data.h + "%";
      tip.style.transform = "translate(" + -100 * x / data.w + "%, " + (below ? "14px" : "calc(-100% - 14px)") + ")";
      parts = [ring, tip];
    };
    const find = (e) => {
      const box = area.getBoundingClientRect();
      const x = (e.clientX - box.left) / box.width * data.w, y = (e.clientY - box.top) / box.height * data.h;
      let best = -1, gap = (data.w / 12) ** 2;
      data.points.forEach((p, i) => {
        if (!p) return;
        const d = (p[0] - x) ** 2 + (p[1] - y) ** 2;
        if (d < gap) { gap = d; best = i; }
      });
      if (best < 0) clear(); else at(best);
    };
    pointing(area, find, (by) => {
      const last = data.points.length - 1, dir = Math.sign(by);
      let next = Math.min(last, Math.max(0, (current < 0 && by < 0 ? last + 1 : current) + by));
      while (next >= 0 && next <= last && !data.points[next]) next += dir;
      if (data.points[next]) at(next);
    }, clear);
    figure.querySelectorAll(".legend li").forEach((item, k) => {
      const fade = (on) => layers.forEach((g, i) => g.classList.toggle("faded", on && i !== k));
      item.addEventListener("pointerenter", () => fade(true));
      item.addEventListener("pointerleave", () => fade(false));
    });
  }

  for (const block of document.querySelectorAll(".code")) {
    const button = make("button", "copy", block, "Copy");
    button.type = "button";
    button.addEventListener("click", async () => {
      const code = block.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        // Pages opened from disk may not write to the clipboard everywhere: select it instead.
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // Paper cannot be unfolded.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => { opened.forEach((d) => { d.open = false; }); opened = []; });
})();
