// Draws a report. Everything comes from its data; nothing is fetched.

const KINDS = ["variables", "optimizer state", "accumulators", "gradients", "activations",
  "inputs and outputs", "constants", "workspace", "channel slots", "rings of feeds",
  "staging of transfers", "checksums", "others", "padding and gaps"
];
const COLOURS = ["#4c78a8", "#b279a2", "#e45756", "#f58518", "#54a24b", "#72b7b2", "#9d755d",
  "#eeca3b", "#d67195", "#8c6bb1", "#6b8e9e", "#a0a83c", "#8a8f98", "#c4c9cf"
];
// Colours of steps in a trace, by their kind.
const EVENTS = { kernel: "#4c78a8", collective: "#e45756", message: "#f58518",
  transfer: "#54a24b" };
const WIDTH = 1200;

const colour = (kind) => COLOURS[Math.max(0, KINDS.indexOf(kind)) % COLOURS.length];
const eventColour = (kind) => EVENTS[kind] ||
  EVENTS[kind === "send" || kind === "receive" ? "message" : "transfer"];
const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
const bytesText = (n) => n >= 10 * 2 ** 20 ? (n / 2 ** 20).toFixed(1) + " MiB" :
  n >= 10 * 2 ** 10 ? (n / 2 ** 10).toFixed(1) + " KiB" : grouped(n) + " B";
const timeText = (s) => s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(3) + " ms" :
  (s * 1e6).toFixed(1) + " µs";

/// Draws a report into a document.
function show(document, report) {
  prepare(report);
  const SVG = "http://www.w3.org/2000/svg";
  const element = (name, attributes = {}, ...children) => {
    const e = document.createElement(name);
    return fill(e, attributes, children);
  };
  const svg = (name, attributes = {}, ...children) =>
    fill(document.createElementNS(SVG, name), attributes, children);

  function fill(e, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
      else if (value !== false && value !== undefined) e.setAttribute(key, value);
    }
    for (const child of children)
      e.appendChild(typeof child === "object" ? child : document.createTextNode(String(child)));
    return e;
  }
  const clear = (e) => { while (e.firstChild) e.removeChild(e.firstChild); };
  const isNumber = (cell) => typeof cell === "number" || /^-?[\d,.]+( (B|KiB|MiB|%|s|ms|µs))?$/
    .test(cell);

  /// A table; `choose(i)` is called for a row that is clicked or entered by the keyboard.
  function table(head, rows, choose) {
    const numeric = head.map((_, c) => rows.length > 0 && rows.every((r) => isNumber(r[c]) || r[
      c] === ""));
    const body = element("tbody");
    rows.forEach((row, i) => {
      const tr = element("tr", choose ? { tabindex: 0, "aria-selected": "false" } : {});
      row.forEach((cell, c) => tr.appendChild(element("td", numeric[c] ? { class: "number" } :
        {},
        typeof cell === "number" ? grouped(cell) : cell)));
      if (choose) {
        const pick = () => {
          for (const other of body.children) other.setAttribute("aria-selected", "false");
          tr.setAttribute("aria-selected", "true");
          choose(i);
        };
        tr.addEventListener("click", pick);
        tr.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e
              .preventDefault();
            pick(); } });
      }
      body.appendChild(tr);
    });
    const header = element("tr");
    head.forEach((text, c) => header.appendChild(element("th", { scope: "col", class: numeric[c] ?
        "number" : "" }, text)));
    return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, header),
      body));
  }

  function select(label, names, change) {
    const box = element("select", { onchange: () => change(Number(box.value)) });
    names.forEach((name, i) => box.appendChild(element("option", { value: i }, name)));
    return element("label", {}, label + " ", box);
  }

  const legend = (kinds, colourOf = colour) => element("div", { class: "legend" },
    ...kinds.map((k) => element("span", { style: `--swatch: ${colourOf(k)}` }, k)));

  // ---- Summary
  function summary(view) {
    const fits = report.memories.every((m) => m.budget_bytes < 0 || m.planned_bytes <= m
      .budget_bytes);
    view.appendChild(fits ? element("p", { class: "good" }, "The plan fits.") :
      element("p", { class: "bad" }, "The plan does not fit."));
    if (report.refusal) view.appendChild(element("p", {}, report.refusal.split("\n")[0]));
    view.appendChild(element("h2", {}, "Where are the bytes?"));
    view.appendChild(table(["memory", "planned", "budget", "always live", "peak of the rest",
        "gaps", "program (host)"
      ],
      report.memories.map((m) => [m.name, m.planned_bytes, m.budget_bytes < 0 ? "none" :
        grouped(m.budget_bytes),
        m.always_live_bytes, m.peak_live_bytes, m.gap_bytes, m.program_bytes
      ])));
    for (const m of report.memories) {
      const bar = svg("svg", {
        viewBox: `0 0 ${WIDTH} 26`,
        role: "img",
        class: "kinds",
        "aria-label": `${m.name}: ` + m.kinds.map((k) => `${k.kind} ${grouped(k.bytes)} bytes`)
          .join(", ")
      });
      const all = Math.max(m.planned_bytes, m.budget_bytes, 1);
      let x = 0;
      for (const k of m.kinds) {
        const width = k.bytes / all * WIDTH;
        bar.appendChild(svg("rect", { x, y: 0, width, height: 26, fill: colour(k.kind) },
          svg("title", {}, `${k.kind}: ${grouped(k.bytes)} bytes`)));
        x += width;
      }
      if (m.budget_bytes >= 0)
        bar.appendChild(svg("line", { class: "budget", x1: m.budget_bytes / all * WIDTH, x2: m
            .budget_bytes / all * WIDTH, y1: 0, y2: 26 }));
      view.appendChild(element("p", {}, `${m.name}: `, m.kinds.map((k) =>
        `${k.kind} ${bytesText(k.bytes)}`).join(", ")));
      view.appendChild(bar);
    }
    view.appendChild(legend(KINDS.filter((k) => report.memories.some((m) => m.kinds.some((x) => x
      .kind === k)))));
    view.appendChild(element("h2", {}, "What is slow?"));
    view.appendChild(table(["program", "forecast", "GF", "operand bytes", "exposed transfers"],
      report.programs.map((p) => [p.name, timeText(p.seconds), (p.flops / 1e9).toFixed(3), p
        .operand_bytes,
        timeText(p.forecasts.reduce((s, t) => s + t.exposed_seconds, 0))
      ])));
    view.appendChild(element("p", { class: "faint" }, `Rates: ${report.machine}`));
    for (const p of report.pipeline)
      view.appendChild(element("p", {},
        `${p.stages.length} stages, ${p.schedule}: the slowest is stage ${p.slowest_stage} ` +
        `(${p.stages[p.slowest_stage].blocks}), ${p.imbalance.toFixed(2)} times the mean; ` +
        `bubble ${(100 * p.bubble).toFixed(1)} %.`
        ));
    if (report.suggestions.length > 0) {
      view.appendChild(element("h2", {}, "What would help?"));
      view.appendChild(table(["option", "device bytes", "bytes in tiers"], report.suggestions.map((
        s) => [s.option, s.device_bytes < 0 ? "not computed" : grouped(s.device_bytes), s
        .device_bytes < 0 ? "" : grouped(s.tier_bytes)
      ])));
    }
    const options = Object.entries(report.options);
    if (options.length > 0) {
      view.appendChild(element("h2", {}, "Options given"));
      view.appendChild(table(["option", "value"], options));
    }
  }

  // ---- Memory over steps
  function memory(view) {
    const frames = report.programs.flatMap((p) => p.starts.map((s) => ({ program: p.name, ...s })));
    if (frames.length === 0) return;
    const place = element("div");
    const draw = (i) => { clear(place);
      memoryChart(place, frames[i]); };
    view.appendChild(element("div", { class: "controls" },
      select("Timeline of", frames.map((s) => `program ${s.program}, device ${s.device}`), draw)
      ));
    view.appendChild(place);
    draw(0);
  }

  function memoryChart(place, start) {
    const m = report.memories.find((x) => x.device === start.device);
    const held = heldObjects(report, m);
    const points = timeline(report, start);
    const gaps = m.gap_bytes;
    const top = Math.max(m.planned_bytes, m.budget_bytes, 1);
    const height = 320,
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
        (point.trips > 1 ? `, ${grouped(point.trips)} turns` : "") + (step.where ?
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

  // ---- Execution trace
  function trace(view) {
    const place = element("div");
    const runs = [...report.programs, ...report.measured];
    const draw = (i) => { clear(place);
      traceChart(place, runs[i]); };
    view.appendChild(element("p", { class: "faint" },
      "Planned: each device computes beside the others at the forecast's rates, with workers " +
        "of its own. Measured: steps and waits of each worker in one run."
      ));
    view.appendChild(element("div", { class: "controls" }, select("Run", runs.map((p) => p.name),
      draw)));
    view.appendChild(place);
    if (report.programs.length > 0) draw(0);
  }

  function traceChart(place, program) {
    const rows = [];
    const rowOf = new Map();
    report.devices.forEach((d, i) => {
      if (!program.starts.some((s) => s.device === i)) return;
      const add = (key, name) => { rowOf.set(key, rows.length);
        rows.push(name); };
      if (program.events.some((e) => e.kind === "part" && e.device === i)) add(`${i} part`,
        `device ${i} blocks`);
      d.queues.forEach((q, n) => { if (n === 0 || program.events.some((e) => e.device === i && e
            .queue === n)) add(`${i} ${n} 0`, `device ${i} ${q}`); });
      for (let w = 1; w < d.workers; ++w)
        if (program.events.some((e) => e.device === i && e.worker === w)) add(`${i} 0 ${w}`,
          `device ${i} worker ${w}`);
    });
    const left = 130,
      rowHeight = 26,
      height = rows.length * rowHeight + 24;
    const end = Math.max(1, ...program.events.map((e) => e.end_ns));
    let from = 0,
      to = end,
      chosen = 0;
    const chart = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${height}`,
      tabindex: 0,
      role: "application",
      class: "trace",
      "aria-label": `Execution of program ${program.name}, ${timeText(end / 1e9)}. ` +
        "Plus and minus zoom, arrow keys move."
    });
    const details = element("div", { "aria-live": "polite" });
    const turns = Math.max(-1, ...program.events.filter((e) => e.kind === "part").map((e) => e
      .step)) + 1;
    const side = (e) => / bwd$/.test(report.functions[e.function].part) ? "bwd" : "fwd";

    function describe(e) {
      const f = report.functions[e.function];
      const span = `${timeText((e.end_ns - e.begin_ns) / 1e9)} from ${timeText(e.begin_ns / 1e9)}`;
      if (e.kind === "part") return `${f.part}, turn ${e.step + 1}: ${span}`;
      const step = f.stepRows[e.step];
      return (e.kind === "wait" ? "wait before " : "") +
        `${step.kind} ${step.name} in ${f.place || f.name}: ${span}` +
        (step.bytes ? `, ${grouped(step.bytes)} bytes` : "") + (step.flops ?
          `, ${grouped(step.flops)} flops` : "") +
        (step.where ? `, ${step.where}` : "");
    }

    function draw() {
      clear(chart);
      const scale = (WIDTH - left) / (to - from);
      rows.forEach((name, r) => {
        chart.appendChild(svg("text", { x: 4, y: r * rowHeight + 17 }, name));
        chart.appendChild(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: (r + 1) *
            rowHeight, y2: (r + 1) * rowHeight }));
      });
      const last = new Map(); // By row: where the last event that was drawn ends.
      for (const e of program.events) {
        if (e.end_ns < from || e.begin_ns > to) continue;
        const r = rowOf.get(e.kind === "part" ? `${e.device} part` :
          `${e.device} ${e.queue} ${e.worker}`);
        const x1 = Math.max(left, left + (e.begin_ns - from) * scale),
          x2 = Math.min(WIDTH, left + (e.end_ns - from) * scale);
        if (x2 - x1 < 0.4 && last.get(r) !== undefined && x2 - last.get(r) < 0.4) continue;
        last.set(r, x2);
        const part = e.kind === "part";
        const mine = part && e.step === chosen;
        const step = part ? null : report.functions[e.function].stepRows[e.step];
        const rect = svg("rect", {
          x: x1, y: r * rowHeight + 3, width: Math.max(0.5, x2 - x1), height: rowHeight - 6,
          class: `event ${e.kind === "wait" ? "wait" : mine ? side(e) + " chosen" : ""}`,
          fill: part ? colour("padding and gaps") : eventColour(step.kind)
        }, svg("title", {}, describe(e)));
        rect.addEventListener("click", () => {
          clear(details);
          details.appendChild(element("div", { class: "details" }, describe(e)));
        });
        chart.appendChild(rect);
        if (part && x2 - x1 > 60) chart.appendChild(svg("text", { x: x1 + 4, y: r * rowHeight +
            17 }, `${report.functions[e.function].part} ${e.step + 1}`));
      }
      chart.appendChild(svg("text", { x: left, y: height - 6 }, timeText(from / 1e9)));
      chart.appendChild(svg("text", { x: WIDTH - 6, y: height - 6, "text-anchor": "end" }, timeText(
        to / 1e9)));
    }
    const zoom = (factor, centre = (from + to) / 2) => {
      const width = Math.min(end, Math.max(10, (to - from) * factor));
      const share = (centre - from) / (to - from);
      from = Math.max(0, Math.min(end - width, centre - share * width));
      to = from + width;
      draw();
    };
    const pan = (share) => {
      const width = to - from;
      from = Math.max(0, Math.min(end - width, from + share * width));
      to = from + width;
      draw();
    };
    chart.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.shiftKey) return;
      e.preventDefault();
      const box = chart.getBoundingClientRect();
      zoom(e.deltaY < 0 ? 0.8 : 1.25, from + ((e.clientX - box.left) / box.width * WIDTH -
        left) / (WIDTH - left) * (to - from));
    }, { passive: false });
    chart.addEventListener("keydown", (e) => {
      const act = {
        "+": () => zoom(0.5),
        "=": () => zoom(0.5),
        "-": () => zoom(2),
        ArrowLeft: () => pan(-0.2),
        ArrowRight: () => pan(0.2),
        "0": () => zoom(Infinity)
      } [e.key];
      if (!act) return;
      e.preventDefault();
      act();
    });
    const controls = element("div", { class: "controls" },
      element("button", { onclick: () => zoom(0.5) }, "Zoom in (+)"), element(
      "button", { onclick: () => zoom(2) }, "Zoom out (-)"),
      element("button", { onclick: () => zoom(Infinity) }, "All (0)"));
    if (turns > 0) {
      const box = element("input", {
        type: "number",
        min: 1,
        max: turns,
        value: 1,
        onchange: () => { chosen = Number(box.value) - 1;
          draw(); }
      });
      controls.appendChild(element("label", {}, "Micro-batch ", box,
        ` of ${turns}: forward green, backward red`));
    }
    place.appendChild(controls);
    place.appendChild(chart);
    place.appendChild(legend([...Object.keys(EVENTS), "wait"],
      (k) => EVENTS[k] || "var(--wait)"));
    place.appendChild(details);
    if (!program.trace.complete)
      place.appendChild(element("p", { class: "faint" },
        program.lost ? `${grouped(program.lost)} earlier events of the run were not kept.` :
        `The trace ends after ${grouped(program.events.length)} events; the run has more.`));
    draw();
  }

  // ---- Stages and schedule
  function schedule(view) {
    for (const p of report.pipeline) {
      view.appendChild(table(["stage", "blocks", "device", "forward", "backward", "times the mean",
          "in flight", "activation bytes", "peak of the device", "parameters"
        ],
        p.stages.map((s, i) => [String(i), s.blocks, String(s.device), timeText(s
            .forward_seconds), timeText(s.backward_seconds),
          ((s.forward_seconds + s.backward_seconds) / (p.stages.reduce((n, x) => n + x
            .forward_seconds + x.backward_seconds, 0) / p.stages.length || 1)).toFixed(2),
          s.in_flight, s.in_flight * s.activation_bytes, (report.memories.find((m) => m
            .device === s.device) || { planned_bytes: 0 }).planned_bytes, s.parameters
        ])));
      const most = 64;
      const slots = Math.min(most, p.slots);
      const all = Array.from({ length: p.stages.length }, () => Array.from({ length: slots },
      () => []));
      for (const t of p.tasks)
        for (let i = 0; i < p.micro_batches; ++i) {
          const slot = t.slot + i * p.period;
          if (slot < slots) all[t.stage][slot].push({ ...t, micro_batch: i });
        }
      const head = element("tr", {}, element("th", { scope: "col" }, "slot"));
      for (let s = 0; s < slots; ++s) head.appendChild(element("th", { scope: "col" }, String(s +
        1)));
      const body = element("tbody");
      all.forEach((cells, stage) => {
        const tr = element("tr", {}, element("th", { scope: "row" }, `S${stage}`));
        for (const tasks of cells)
          tr.appendChild(element("td", { class: tasks.length === 0 ? "" : tasks[0].backward ?
                "bwd" : "fwd" },
            tasks.length === 0 ? "." : tasks.map((t) => (t.backward ? "B" : "F") + (t
              .micro_batch + 1)).join("+")));
        body.appendChild(tr);
      });
      view.appendChild(element("h2", {},
        `Schedule: ${p.schedule}, ${p.micro_batches} micro-batches in ${p.slots} slots, ` +
        `${p.ramp_slots} of them ramp up`
        ));
      view.appendChild(element("div", { class: "scroll" }, element("table", { class: "schedule" },
        element("thead", {}, head), body)));
      if (p.slots > slots) view.appendChild(element("p", { class: "faint" },
        `The table has the first ${slots} slots.`));
    }
  }

  // ---- Traffic
  function traffic(view) {
    for (const p of report.programs) {
      if (p.transfers.length + p.messages.length + p.collectives.length === 0) continue;
      view.appendChild(element("h2", {}, `A run of ${p.name}, each replica`));
      if (p.transfers.length > 0)
        view.appendChild(table(["transfer", "stream or remote buffer", "device", "queue", "count",
          "bytes"
        ], p.transfers.map((t) => [t.kind, (t.kind.startsWith("stream") ? report.streams :
            report.remote_buffers)[t.object], String(t.device),
          report.devices[t.device].queues[t.queue], t.transfers, t.bytes
        ])));
      if (p.messages.length > 0)
        view.appendChild(table(["messages from", "to", "count", "bytes"], p.messages.map((m) => [
          `device ${m.from}`, `device ${m.to}`, m.messages, m.bytes
        ])));
      if (p.collectives.length > 0)
        view.appendChild(table(["collective", "group", "device", "count", "operand bytes"], p
          .collectives.map((c) => [c.op, String(c.group), String(c.device), c.collectives, c
            .bytes])));
      if (p.forecasts.length > 0)
        view.appendChild(table(["memory", "bytes of all replicas", "time", "hidden", "exposed"], p
          .forecasts.map((t) => [t.memory, t.bytes, timeText(t.seconds), timeText(Math.max(0, t
            .seconds - t.exposed_seconds)), timeText(t.exposed_seconds)])));
    }
  }

  // ---- Functions
  function functions(view) {
    const rows = report.functions.map((f) => [f.place, f.name, String(f.device), f.stepRows.length,
      f.peak_bytes, f.frame_bytes, f.program_bytes
    ]);
    rows.sort((a, b) => b[6] - a[6]);
    view.appendChild(table(["place", "function", "device", "steps", "peak live bytes",
      "frame bytes", "program bytes"
    ], rows));
  }

  const VIEWS = [
    ["Summary", summary],
    ["Memory", memory],
    ["Trace", trace],
    ...(report.pipeline.length > 0 ? [
      ["Schedule", schedule]
    ] : []), ["Traffic", traffic],
    ["Functions", functions]
  ];
  const nav = document.getElementById("nav"),
    main = document.getElementById("main");
  document.getElementById("title").textContent = `Sluice report: ${report.model}` + (report
    .replicas > 1 ? `, ${report.replicas} replicas` : "");
  const sections = VIEWS.map(([name, draw], i) => {
    const section = element("section", { "aria-label": name, hidden: i === 0 ? false : "" });
    main.appendChild(section);
    const button = element("button", { "aria-current": i === 0 ? "page" : "false" }, name);
    const open = () => {
      sections.forEach((other) => { other.section.hidden = other.section !== section;
        other.button.setAttribute("aria-current", other.section === section ? "page" :
          "false"); });
      if (!section.firstChild) draw(section);
    };
    button.addEventListener("click", open);
    nav.appendChild(button);
    return { section, button, open };
  });
  sections[0].open();
  document.addEventListener("keydown", (e) => {
    const n = Number(e.key);
    if (e.altKey && n >= 1 && n <= sections.length) sections[n - 1].open();
  });
}
