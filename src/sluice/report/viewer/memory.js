// Draws memory over the steps of a program.

/// Returns a function that draws the view into a section.
function memoryView(report, ui) {
  const { element, svg, clear, table, select, legend } = ui;

  function memory(view) {
    const frames = report.programs.flatMap((p) => p.starts.map((s) => ({ program: p.name, ...s })));
    if (frames.length === 0) return;
    const place = element("div");
    let at = 0,
      second = null;
    const draw = () => { clear(place);
      memoryChart(place, frames[at], second && curveOf(second, frames[at])); };
    const message = element("p", { "aria-live": "polite", class: "second" });
    const file = element("input", { type: "file", accept: ".json,application/json",
      onchange: async () => {
        second = null;
        const [chosen] = file.files;
        const text = chosen ? await chosen.text() : "";
        if (chosen !== file.files[0]) return; // Another file was chosen meanwhile.
        const read = chosen ? readSecond(text, report) : "";
        if (typeof read !== "string") second = read;
        message.className = `second ${read && !second ? "bad" : ""}`;
        message.textContent = second ? `The line is ${chosen.name}.` : read;
        draw();
        if (second && !curveOf(second, frames[at])) message.textContent +=
          " It does not run this program on this device.";
      } });
    view.appendChild(element("div", { class: "controls" },
      select("Timeline of", frames.map((s) => `program ${s.program}, device ${s.device}`),
        (i) => { at = i;
          draw(); }), element("label", {}, "Compare with a report.json ", file)));
    view.appendChild(message);
    view.appendChild(place);
    draw();
  }

  /// Returns the bytes of a second report's device over the steps of the same program.
  function curveOf(second, frame) {
    const program = second.programs.find((p) => p.name === frame.program);
    const start = program && program.starts.find((s) => s.device === frame.device);
    const m = second.memories.find((x) => x.device === frame.device);
    if (!start || !m) return null;
    return timeline(second, start).map((p) => p.live + m.always_live_bytes + m.gap_bytes);
  }

  /// Draws a curve over the whole width. Of the points that share a column, the largest counts.
  function drawCurve(chart, curve, y) {
    const columns = Math.min(curve.length, WIDTH);
    let path = "";
    for (let c = 0; c < columns; ++c) {
      const part = curve.slice(Math.floor(c * curve.length / columns), Math.floor((c + 1) * curve
        .length / columns));
      const level = y(part.reduce((a, b) => Math.max(a, b))).toFixed(1);
      path += `${c === 0 ? "M0" : `L${(c / columns * WIDTH).toFixed(1)}`} ${level}` +
        `H${((c + 1) / columns * WIDTH).toFixed(1)}`;
    }
    chart.appendChild(svg("path", { class: "second", d: path }));
  }

  /// Draws a strip of the parts of blocks below the steps.
  function drawParts(chart, bands, x, base) {
    for (const band of bands) {
      const name = report.parts[band.part],
        from = x(band.from),
        width = x(band.to) - from;
      const side = / bwd$/.test(name) ? "bwd" : "fwd";
      chart.appendChild(svg("rect", { class: `part ${side}`, "data-part": name, x: from,
        y: base + 4, width: Math.max(0.5, width), height: 18 }, svg("title", {}, name)));
      if (width > 7 * name.length + 8) chart.appendChild(svg("text", { x: from + 4, y: base + 17 },
        name));
    }
  }

  function memoryChart(place, start, second) {
    const m = report.memories.find((x) => x.device === start.device);
    const held = heldObjects(report, m);
    const points = timeline(report, start);
    const gaps = m.gap_bytes;
    const top = Math.max(m.planned_bytes, m.budget_bytes, 1, ...(second ? [second.reduce((a, b) =>
      Math.max(a, b), 0)] : []));
    const height = 340,
      base = 300;
    const columns = Math.min(points.length, WIDTH);
    // Of the points that share a column, the one with the most bytes is drawn.
    const drawn = [];
    for (let c = 0; c < columns; ++c) {
      const from = Math.floor(c * points.length / columns),
        to = Math.floor((c + 1) * points.length / columns);
      let best = from;
      for (let i = from; i < to; ++i)
        if (points[i].live > points[best].live) best = i;
      drawn.push(best);
    }
    const always = {};
    for (const o of held) always[o.kind] = (always[o.kind] || 0) + o.bytes;
    const bands = drawn.map((i) => {
      const bytes = { ...always, "padding and gaps": gaps };
      let known = 0;
      for (const b of liveBuffers(report, points[i])) { bytes[b.kind] = (bytes[b.kind] || 0) + b
          .bytes;
        known += b.bytes; }
      if (points[i].live > known) bytes.others = (bytes.others || 0) + points[i].live - known;
      return bytes;
    });
    const kinds = ["padding and gaps", ...KINDS.filter((k) => k !== "padding and gaps")]
      .filter((k) => bands.some((b) => b[k] > 0));
    const chart = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${height}`,
      tabindex: 0,
      role: "application",
      class: "memory",
      "aria-label": `Memory of ${m.name} over ${points.length} steps of program ` +
        `${start.program}. Arrow keys move the cursor.`
    });
    const x = (i) => i / Math.max(1, columns) * WIDTH;
    const y = (bytes) => base - bytes / top * (base - 10);
    const sums = new Array(columns).fill(0);
    for (const kind of kinds) {
      let lower = "",
        path = "";
      for (let c = 0; c < columns; ++c) {
        const from = sums[c],
          to = from + (bands[c][kind] || 0);
        path +=
          `${c === 0 ? "M" : "L"}${x(c).toFixed(1)} ${y(to).toFixed(1)}H${x(c + 1).toFixed(1)}`;
        lower = `L${x(c + 1).toFixed(1)} ${y(from).toFixed(1)}H${x(c).toFixed(1)}` + lower;
        sums[c] = to;
      }
      chart.appendChild(svg("path", { d: path + lower + "Z", fill: colour(kind),
      class: "band", "data-kind": kind }));
    }
    if (m.budget_bytes >= 0) chart.appendChild(svg("line", { class: "budget", x1: 0, x2: WIDTH,
      y1: y(m.budget_bytes), y2: y(m.budget_bytes) }));
    drawParts(chart, partsOf(report, points), (i) => x(i / points.length * columns), base);
    if (second) drawCurve(chart, second, y);
    chart.appendChild(svg("text", { x: 6, y: 16 }, `planned ${grouped(m.planned_bytes)} bytes`));
    chart.appendChild(svg("text", { x: 6, y: height - 5 }, "steps in order, loops folded"));
    const lifetime = svg("rect", { class: "lifetime", x: 0, y: base, width: 0, height: 4 });
    const cursor = svg("line", { class: "cursor", x1: 0, x2: 0, y1: 0, y2: base });
    chart.appendChild(lifetime);
    chart.appendChild(cursor);
    const where = element("p", { "aria-live": "polite" }),
      list = element("div"),
      details = element("div");
    let at = drawn.reduce((best, i) => points[i].live > points[best].live ? i : best, drawn[0] ||
    0);

    function showStep() {
      const point = points[at];
      const [f, s] = point.path[point.path.length - 1];
      const step = report.functions[f].stepRows[s];
      cursor.setAttribute("x1", x(at / points.length * columns));
      cursor.setAttribute("x2", x(at / points.length * columns));
      clear(where);
      where.appendChild(document.createTextNode(
        `Step ${at + 1} of ${points.length}: ` +
        `${report.functions[f].place || report.functions[f].name}, ${step.kind} ${step.name}` +
        (point.runs ? `, in ${report.parts[point.runs.part]}` : "") +
        (point.trips > 1 ? `, ${grouped(point.trips)} iterations` : "") + (step.where ?
          `, ${step.where}` : "") +
        ` — ${grouped(point.live + m.always_live_bytes + gaps)} bytes`));
      const live = [...liveBuffers(report, point), ...held].sort((a, b) => b.bytes - a.bytes);
      clear(list);
      clear(details);
      lifetime.setAttribute("width", 0);
      list.appendChild(table(["bytes", "kind", "layer", "name"],
        live.slice(0, 40).map((b) => [b.bytes, b.kind, b.place, b.name]), (i) => showBuffer(
          live[i])));
      if (live.length > 40) list.appendChild(element("p", { class: "faint" },
        `and ${live.length - 40} smaller ones`));
    }

    function showBuffer(b) {
      clear(details);
      const always = b.owner === undefined;
      const span = always ? [0, points.length - 1] : lifetimeOf(b);
      lifetime.setAttribute("x", x(span[0] / points.length * columns));
      lifetime.setAttribute("width", Math.max(2, x((span[1] + 1 - span[0]) / points.length *
        columns)));
      const f = always ? null : report.functions[b.owner];
      const source = always ? "" : (f.stepRows[Math.min(b.begin, f.stepRows.length - 1)] || {})
        .where;
      details.appendChild(element("div", { class: "details" },
        element("p", {}, element("strong", {}, b.name)),
        element("p", {},
          `${b.place || "no layer"}: ${b.kind}, ${grouped(b.bytes)} bytes at offset ` +
          grouped(b.offset)
          ),
        element("p", {}, always ? "live for the whole program" :
          `live in steps ${b.begin} to ${b.end - 1} of ${f.name}` + (source ?
            `, made at ${source}` : ""))));
    }
    // The first and the last point around the cursor at which the buffer is live.
    function lifetimeOf(b) {
      const alive = (p) => p.path.some(([f, s]) => f === b.owner && b.begin <= s && s < b.end);
      let from = at,
        to = at;
      while (from > 0 && alive(points[from - 1])) --from;
      while (to + 1 < points.length && alive(points[to + 1])) ++to;
      return [from, to];
    }
    const move = (i) => { at = Math.min(points.length - 1, Math.max(0, i));
      showStep(); };
    chart.addEventListener("click", (e) => {
      const box = chart.getBoundingClientRect();
      move(Math.floor((e.clientX - box.left) / box.width * points.length));
    });
    chart.addEventListener("keydown", (e) => {
      const page = Math.max(1, Math.round(points.length / 20));
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - page, PageDown: at +
          page, Home: 0, End: points.length - 1 } [e.key];
      if (to === undefined) return;
      e.preventDefault();
      move(to);
    });
    place.appendChild(chart);
    place.appendChild(legend(kinds));
    place.appendChild(where);
    place.appendChild(details);
    place.appendChild(list);
    if (points.length > 0) showStep();
  }
  return memory;
}

