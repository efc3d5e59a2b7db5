"use strict";
// Draws every element of class "graph" from the data that it carries: layers fold, operators tell what they are.
for (const host of document.querySelectorAll(".graph[data-graph]")) {
  const data = JSON.parse(host.dataset.graph), GAP = 16, ROW = 34, PAD = 12, HEAD = 24, SPAN = 8;
  const ops = data.nodes, byId = new Map(ops.map(o => [o.i, o])), root = { path: "", members: [], all: [] };
  const groups = new Map([["", root]]), opened = new Set([""]), readers = new Map();
  const make = (tag, text = "", attributes = {}) => {
    const e = Object.assign(document.createElement(tag), { textContent: text });
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  const draw = (tag, attributes, text = "") => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    e.textContent = text;
    return e;
  };
  const short = (s, n = 26) => s.length <= n ? s : s.slice(0, n - 12) + "…" + s.slice(-11);
  const guilty = o => o.v === "to blame";

  // Groups by the names of modules; one of a single operator is none.
  const sizes = new Map();
  const paths = o => o.s.split("/").filter(Boolean).map((_, k, all) => all.slice(0, k + 1).join("/"));
  for (const o of ops) for (const p of paths(o)) sizes.set(p, (sizes.get(p) || 0) + 1);
  for (const o of ops) {
    let group = root;
    root.all.push(o);
    for (const path of paths(o)) {
      if (sizes.get(path) < 2 || sizes.get(path) === ops.length) continue;
      if (!groups.has(path)) {
        groups.set(path, { path, parent: group, members: [], all: [] });
        group.members.push(groups.get(path));
      }
      group = groups.get(path);
      group.all.push(o);
    }
    o.parent = group;
    group.members.push(o);
    for (const x of o.x) readers.set(x, [...(readers.get(x) || []), o]);
  }
  const reveal = o => { for (let g = o.parent; g; g = g.parent) opened.add(g.path); };
  // Layers are open, the outermost first, as long as what is seen is few.
  let seen = root.members.length;
  for (const group of [...groups.values()].slice(1).sort((a, b) => a.path.split("/").length - b.path.split("/").length)) {
    if (!opened.has(group.parent.path) || seen + group.members.length > 60) continue;
    opened.add(group.path);
    seen += group.members.length;
  }
  ops.filter(guilty).forEach(reveal);

  // Colours.
  const worst = Math.max(...ops.map(o => o.m || 0), 1e-12);
  const tint = (colour, share) => `color-mix(in srgb, var(--${colour}) ${Math.round(8 + 42 * share)}%, var(--back))`;
  const scales = {
    verdict: o => ({ "to blame": tint("fail", 1), differs: tint("odd", .4), agrees: tint("pass", .4) })[o.v],
    error: o => o.e == null ? "" : tint("fail", o.e === 0 ? 0 : Math.min(1, Math.max(.05, (Math.log10(o.e) + 9) / 9))),
    time: o => o.m == null ? "" : tint("mark", Math.sqrt(o.m / worst)),
    type: o => `color-mix(in srgb, hsl(${[...o.t].reduce((h, c) => (h * 31 + c.charCodeAt()) % 360, 7)} 55% 50%) 20%, var(--back))`,
  };
  const told = {
    verdict: "red: to blame, amber: differs, green: agrees", error: "darker: a larger error, from 1e-9 to 1",
    time: "darker: more time", type: "a colour for each type",
  };
  const rank = { verdict: o => ["", "agrees", "differs", "to blame"].indexOf(o.v || ""), error: o => o.e ?? -1, time: o => o.m ?? -1 };
  const colours = Object.keys(scales).filter(k => k === "type" || ops.some(o => o[{ verdict: "v", error: "e", time: "m" }[k]] != null));

  // The frame.
  const find = make("input", "", { type: "search", placeholder: "search operators", "aria-label": "search operators" });
  const by = make("select", "", { "aria-label": "colours" }), said = make("span", "", { role: "status", "aria-live": "polite" });
  for (const k of colours) by.append(make("option", "by " + k, { value: k }));
  const bar = make("div", "", { class: "bar" }), plane = make("div", "", { class: "plane" });
  const panel = make("aside", "", { "aria-live": "polite", "aria-label": "the selected operator" });
  const button = (text, label, act) => {
    const b = make("button", text, { type: "button", "aria-label": label, title: label });
    b.addEventListener("click", act);
    bar.append(b);
  };
  let zoom = 0, chosen = null, picture = null, wide = 0, high = 0, at = -1, drawn = new Map();
  const sized = () => { picture.setAttribute("width", wide * zoom); picture.setAttribute("height", high * zoom); };
  const fit = () => { zoom = Math.min(1, Math.max(.3, (plane.clientWidth - 8) / wide)); sized(); };
  bar.append(find, by);
  button("−", "smaller", () => { zoom /= 1.25; sized(); });
  button("+", "larger", () => { zoom *= 1.25; sized(); });
  button("fit", "fit the width", fit);
  if (groups.size > 1) {
    button("unfold", "unfold all layers", () => { for (const p of groups.keys()) opened.add(p); render(); });
    button("fold", "fold all layers", () => { opened.clear(); opened.add(""); render(); });
  }
  bar.append(said);
  host.append(bar, plane, panel);

  // Layout: boxes in rows, each below all that it reads; an open layer is a box around boxes of its own.
  const mean = (values, otherwise) => values.length ? values.reduce((a, b) => a + b) / values.length : otherwise;
  const layered = (boxes, edges) => {
    const rows = boxes.map(() => 0), order = [], near = [boxes.map(() => []), boxes.map(() => [])];
    const all = boxes.map(b => ({ w: b.w, h: b.h })), below = boxes.map(() => []), lanes = [];
    for (const e of edges) below[Math.min(e.a, e.b)].push(Math.max(e.a, e.b));
    below.forEach((to, a) => to.forEach(b => { rows[b] = Math.max(rows[b], rows[a] + 1); }));
    all.forEach((b, i) => { b.row = rows[i]; });
    for (const e of edges) {
      const span = rows[e.b] - rows[e.a];
      e.via = [];
      if (span < 1 || span > SPAN) { lanes.push(e); continue; }
      for (let r = rows[e.a] + 1; r < rows[e.b]; r++) {
        e.via.push(all.length);
        all.push({ w: 4, h: 0, row: r });
        near.forEach(n => n.push([]));
      }
      const path = [e.a, ...e.via, e.b];
      for (let k = 1; k < path.length; k++) { near[0][path[k]].push(path[k - 1]); near[1][path[k - 1]].push(path[k]); }
    }
    all.forEach((b, i) => (order[b.row] ||= []).push(i));
    order.forEach(row => row.forEach((i, k) => { all[i].k = k; }));
    const sweeps = act => { for (let s = 0; s < 6; s++) (s % 2 ? [...order].reverse() : order).forEach(row => act(row, near[s % 2])); };
    sweeps((row, from) => {
      const wish = new Map(row.map(i => [i, mean(from[i].map(j => all[j].k), all[i].k)]));
      row.sort((a, b) => wish.get(a) - wish.get(b)).forEach((i, k) => { all[i].k = k; });
    });
    order.forEach(row => row.reduce((x, i) => (all[i].x = x) + all[i].w + GAP, 0));
    sweeps((row, from) => {
      const wish = row.map(i => mean(from[i].map(j => all[j].x + all[j].w / 2), all[i].x + all[i].w / 2) - all[i].w / 2);
      const right = [...wish], left = [...wish];
      for (let k = 1; k < row.length; k++) right[k] = Math.max(right[k], right[k - 1] + all[row[k - 1]].w + GAP);
      for (let k = row.length - 2; k >= 0; k--) left[k] = Math.min(left[k], left[k + 1] - all[row[k]].w - GAP);
      row.forEach((i, k) => { all[i].x = (right[k] + left[k]) / 2; });
    });
    const least = all.reduce((x, b) => Math.min(x, b.x), Infinity);
    let y = 0, far = 0;
    for (const row of order) {
      const tall = Math.max(...row.map(i => all[i].h));
      for (const i of row) { all[i].x -= least; all[i].y = y + (boxes[i] ? 0 : tall / 2); far = Math.max(far, all[i].x + all[i].w); }
      y += tall + ROW;
    }
    lanes.forEach((e, k) => { e.lane = far + GAP + 6 * (k % 8); });
    boxes.forEach((b, i) => { b.x = all[i].x; b.y = all[i].y; });
    for (const e of edges) e.via = e.via.map(i => [all[i].x + 2, all[i].y]);
    return { w: far + (lanes.length ? GAP + 54 : 0), h: Math.max(0, y - ROW) };
  };
  const render = () => {
    const boxOf = new Map(), lines = new Map();
    const box = m => {
      if (!m.members) return { m, w: Math.max(90, 7 * Math.max(short(m.t).length, short(tail(m)).length) + 16), h: 40 };
      if (!opened.has(m.path)) return { m, w: Math.max(110, 7 * (short(last(m.path)).length + 8) + 16), h: 40 };
      return { m, open: true };
    };
    const chain = o => {
      const up = [o];
      for (let g = o.parent; g; g = g.parent) up.unshift(g);
      const closed = up.findIndex(g => g.members && !opened.has(g.path));
      return closed < 0 ? up : up.slice(0, closed + 1);
    };
    const chains = new Map(ops.map(o => [o.i, chain(o)]));
    for (const o of ops) for (const x of o.x) {
      const to = chains.get(o.i), from = chains.get(x);
      let d = 0;
      while (d < to.length && d < from.length && to[d] === from[d]) d++;
      if (d === to.length || d === from.length) continue;
      const level = to[d - 1], key = [from.at(-1).path ?? from.at(-1).i, to.at(-1).path ?? to.at(-1).i].join("\n");
      if (!lines.has(level)) lines.set(level, new Map());
      lines.get(level).set(key, { from: from[d], to: to[d], start: from.at(-1), end: to.at(-1), say: byId.get(x).o[0] || "" });
    }
    const arrange = group => {
      const boxes = group.members.map(box), number = new Map(group.members.map((m, k) => [m, k]));
      for (const b of boxes) {
        if (b.open) {
          b.inner = arrange(b.m);
          b.w = b.inner.w + 2 * PAD;
          b.h = b.inner.h + PAD + HEAD;
        }
        boxOf.set(b.m, b);
      }
      const edges = [...(lines.get(group)?.values() || [])];
      for (const e of edges) { e.a = number.get(e.from); e.b = number.get(e.to); }
      return { ...layered(boxes, edges), boxes, edges };
    };
    const whole = arrange(root);
    wide = whole.w + 16;
    high = whole.h + 16;
    picture = draw("svg", { viewBox: `-8 -8 ${wide} ${high}`, role: "group", "aria-label": "graph of " + data.label });
    drawn = new Map();
    const backs = draw("g", {}), paths = draw("g", {}), fronts = draw("g", {});
    const place = (part, x, y) => {
      for (const b of part.boxes) {
        b.x += x;
        b.y += y;
        if (b.open) place(b.inner, b.x + PAD, b.y + HEAD);
        (b.open ? backs : fronts).append(shape(b));
      }
      for (const e of part.edges) {
        const s = boxOf.get(e.start), t = boxOf.get(e.end);
        e.points = [[s.x + s.w / 2, s.y + s.h], ...e.via.map(p => [p[0] + x, p[1] + y]), [t.x + t.w / 2, t.y]];
        if (e.lane != null) e.points.splice(1, 0, [e.lane + x, e.points[0][1] + ROW / 2], [e.lane + x, e.points[1][1] - ROW / 2]);
      }
      for (const e of part.edges) paths.append(line(e));
    };
    place(whole, 0, 0);
    picture.append(backs, paths, fronts);
    plane.replaceChildren(picture);
    if (zoom) sized(); else fit();
    paint();
  };
  const line = e => {
    let [x, y] = e.points[0], path = `M${x},${y}`;
    for (const [a, b] of e.points.slice(1)) {
      path += `C${x},${(y + b) / 2} ${a},${(y + b) / 2} ${a},${b}`;
      [x, y] = [a, b];
    }
    const p = draw("path", { d: path });
    p.ends = [e.start, e.end];
    p.append(draw("title", {}, e.say));
    return p;
  };
  const last = path => path.split("/").at(-1);
  const tail = o => (o.n || "").split(/[./]/).at(-1) || (o.o[0] || "").split(" ").at(-2) || "";
  const shape = b => {
    const m = b.m, many = m.members, bad = many ? m.all.some(guilty) : guilty(m);
    const title = many ? `${m.path}: ${m.all.length} operators` : `${m.t} ${m.n || ""}: ${m.o.join(", ")}`;
    const g = draw("g", { class: `${many ? b.open ? "open" : "layer" : "op"}${bad ? " blamed" : ""}`, tabindex: 0, role: "button", "aria-label": title });
    if (many) g.setAttribute("aria-expanded", !!b.open);
    g.append(draw("title", {}, title), draw("rect", { x: b.x, y: b.y, width: b.w, height: b.h, rx: 6 }));
    const centre = { x: b.x + b.w / 2, "text-anchor": "middle" };
    if (b.open) g.append(draw("text", { x: b.x + 10, y: b.y + 16 }, "− " + short(last(m.path), 40)));
    else {
      g.append(draw("text", { ...centre, y: b.y + 17 }, many ? "+ " + short(last(m.path)) : short(m.t)));
      g.append(draw("text", { ...centre, y: b.y + 32, class: "size" }, many ? m.all.length + " operators" : short(tail(m))));
    }
    g.member = m;
    drawn.set(m, g);
    return g;
  };
  const paint = () => {
    const scale = by.value, wanted = find.value.toLowerCase();
    const hit = o => wanted && `${o.t} ${o.n} ${o.o.join(" ")}`.toLowerCase().includes(wanted);
    for (const [m, g] of drawn) {
      const most = m.members && rank[scale] ? m.all.reduce((a, b) => rank[scale](b) > rank[scale](a) ? b : a) : null;
      if (!m.members || most) g.children[1].style.fill = g.classList.contains("open") ? "" : scales[scale](most || m) || "";
      else g.children[1].style.fill = "";
      g.classList.toggle("found", !!(m.members ? m.all.some(hit) : hit(m)));
      g.classList.toggle("chosen", m === chosen);
    }
    for (const p of picture.querySelectorAll("path")) p.classList.toggle("chosen", p.ends.includes(chosen));
    said.textContent = wanted ? `${ops.filter(hit).length} of ${ops.length} found` : `${ops.length} operators; ${told[scale]}`;
    return ops.filter(hit);
  };
  const show = (m, focus = true) => {
    chosen = m;
    const box = drawn.get(m), list = make("dl");
    const add = (name, ...values) => {
      if (values.length) list.append(make("dt", name), ...values.map(v => { const d = make("dd"); d.append(v); return d; }));
    };
    const link = o => {
      const b = make("button", `${o.t} ${o.n || ""}`, { type: "button" });
      b.addEventListener("click", () => go(o));
      return b;
    };
    if (m.members) add("operators", String(m.all.length));
    else {
      add("type", m.t);
      if (m.v) add("verdict", m.v);
      if (m.e != null) add("error", m.e.toPrecision(4));
      if (m.m != null) add("time", (m.m * 1e3).toPrecision(4) + " ms");
      add("outputs", ...m.o);
      add("attributes", ...m.a);
      add("weights", ...m.w);
      add("reads", ...m.x.map(x => link(byId.get(x))));
      add("read by", ...(readers.get(m.i) || []).map(link));
    }
    panel.replaceChildren(make("h3", m.path || m.n || m.t), list);
    paint();
    if (focus && box) { box.scrollIntoView({ block: "center", inline: "center" }); box.focus({ preventScroll: true }); }
  };
  const go = o => { reveal(o); render(); show(o); };
  const act = g => {
    const m = g.member;
    if (!m.members) { show(m, false); return; }
    opened.has(m.path) ? opened.delete(m.path) : opened.add(m.path);
    render();
    show(m, false);
    drawn.get(m)?.focus({ preventScroll: true });
  };
  plane.addEventListener("click", e => { const g = e.target.closest("[role=button]"); if (g) act(g); });
  plane.addEventListener("keydown", e => {
    const g = e.target.closest("[role=button]"), m = g?.member;
    if (!m) return;
    const next = { ArrowUp: m.x && byId.get(m.x[0]), ArrowDown: readers.get(m.i)?.[0] }[e.key];
    if (e.key === "Enter" || e.key === " ") act(g); else if (next) go(next); else return;
    e.preventDefault();
  });
  by.addEventListener("change", paint);
  find.addEventListener("input", () => { at = -1; paint(); });
  find.addEventListener("keydown", e => {
    const hits = e.key === "Enter" ? paint() : [];
    if (hits.length) { at = (at + 1) % hits.length; go(hits[at]); find.focus(); }
  });
  render();
  const first = ops.find(guilty);
  if (first) { show(first, false); const b = drawn.get(first).getBBox(); plane.scrollTo((b.x + b.width / 2) * zoom - plane.clientWidth / 2, b.y * zoom - plane.clientHeight / 2); }
  else panel.append(make("p", "Select an operator or a layer: a click or Enter; the arrow keys follow the values."));
}
