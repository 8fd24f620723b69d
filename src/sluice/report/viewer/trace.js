// Draws planned and measured executions.

/// Returns a function that draws the view into a section.
function traceView(report, ui) {
  const { element, svg, clear, table, select, legend } = ui;

  function trace(view) {
    const place = element("div");
    const runs = [...report.programs, ...report.measured];
    const draw = (i) => { clear(place);
      traceChart(place, runs[i]); };
    view.appendChild(element("p", { class: "faint" },
      "Planned: each device computes concurrently with the others at the forecast's rates, with workers " +
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
    const end = program.events.reduce((most, e) => Math.max(most, e.end_ns), 1);
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
    const turns = program.events.reduce(
      (most, e) => e.kind === "part" ? Math.max(most, e.step + 1) : most, 0);
    const side = (e) => / bwd$/.test(report.parts[e.part]) ? "bwd" : "fwd";

    function describe(e) {
      const f = report.functions[e.function];
      const span = `${timeText((e.end_ns - e.begin_ns) / 1e9)} from ${timeText(e.begin_ns / 1e9)}`;
      if (e.kind === "part") return `${report.parts[e.part]}, iteration ${e.step + 1}: ${span}`;
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
        const part = e.kind === "part";
        const mine = part && e.step === chosen;
        const hidden = x2 - x1 < 0.4 && last.get(r) !== undefined && x2 - last.get(r) < 0.4;
        if (hidden && !mine) continue;
        last.set(r, x2);
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
            17 }, `${report.parts[e.part]} ${e.step + 1}`));
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
  return trace;
}

