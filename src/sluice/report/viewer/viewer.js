// Draws a report. Everything comes from its data; nothing is fetched.

/// Draws a report into a document.
function show(document, report) {
  prepare(report);
  const ui = makeUi(document);
  const { element, svg, table, legend } = ui;
  const tables = tableViews(report, ui);

  // ---- Summary
  function summary(view) {
    const fits = report.memories.every((m) => m.budget_bytes < 0 || m.planned_bytes <= m
      .budget_bytes);
    view.appendChild(fits ? element("p", { class: "good" }, "The plan fits.") :
      element("p", { class: "bad" }, "The plan does not fit."));
    if (report.refusal) view.appendChild(element("div", { class: "refusal" }, ...report.refusal
      .split("\n").map((line) => element("p", {}, line))));
    if (remedies(report).length > 0)
      view.appendChild(element("p", { class: "remedy" },
        `It fits with one of these: ${remedies(report).join("; ")}.`));
    view.appendChild(element("h2", {}, "Where are the bytes?"));
    view.appendChild(table(["memory", "planned", "budget", "always live", "peak of the rest",
        "gaps", "program (host)"
      ],
      report.memories.map((m) => [m.name, m.planned_bytes, m.budget_bytes < 0 ? "none" :
        grouped(m.budget_bytes),
        m.always_live_bytes, m.peak_live_bytes, m.gap_bytes, m.program_bytes
      ])));
    for (const b of report.host_buffers || [])
      view.appendChild(element("p", {}, `host memory: ${bytesText(b.bytes)}, ${b.kind}`));
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
    view.appendChild(table(["program", "forecast", "measured", "runs", "GF", "operand bytes",
        "exposed transfers"
      ],
      report.programs.map((p) => [p.name, timeText(p.seconds), p.measured_ns < 0 ? "" : timeText(p
          .measured_ns / 1e9), p.measured_runs, (p.flops / 1e9).toFixed(3), p.operand_bytes,
        timeText(p.device_times.some((d) => d.exposed_ns >= 0) ? transferTimes(p).exposed : p
          .forecasts.reduce((s, t) => s + t.exposed_seconds, 0))
      ])));
    const most = 8;
    for (const p of report.programs) {
      if (p.kernelRows.length === 0 || (report.measured.length > 0 && !isMeasured(p))) continue;
      view.appendChild(element("p", {}, `Program ${p.name}: the slowest of ` +
        `${grouped(p.kernel_count)} kernels, by their time in ${timesOf(p)}.`));
      view.appendChild(table(["kernel", "layer", "source line", "runs", "time",
          "share of kernels"
        ],
        kernelsOf(report, p).slice(0, most).map((k) => [kernelName(k), k.layer, k.source, k.runs,
          timeText(kernelTime(k) / 1e9), `${(100 * k.share).toFixed(1)} %`
        ])));
    }
    view.appendChild(element("p", { class: "faint" }, `Rates: ${report.machine}`));
    for (const p of report.pipeline)
      view.appendChild(element("p", {},
        `${p.stages.length} stages, ${p.schedule}: in the forecast, the slowest is stage ` +
        `${p.slowest_stage} ` +
        `(${p.stages[p.slowest_stage].blocks}), ${p.imbalance.toFixed(2)} times the mean; ` +
        `bubble ${(100 * p.bubble).toFixed(1)} %.`
        ));
    const found = insights(report);
    if (found.length + report.suggestions.length > 0)
      view.appendChild(element("h2", {}, "What would help?"));
    view.appendChild(element("ul", { class: "insights" }, ...found.map((text) => element("li", {},
      text))));
    if (report.suggestions.length > 0) {
      view.appendChild(table(["option", "device bytes", "bytes in tiers", "fits"], report
        .suggestions.map((s) => [s.option, s.device_bytes < 0 ? "not computed" : grouped(s
            .device_bytes), s.device_bytes < 0 ? "" : grouped(s.tier_bytes), s.device_bytes < 0 ?
          "" : s.fits ? "yes" : "no"
        ])));
    }
    const options = changedOptions(report);
    if (options.length > 0) {
      view.appendChild(element("h2", {}, "Options that differ from their defaults"));
      view.appendChild(table(["option", "value", "default"], options));
    }
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
      tables.matrix(view, p);
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
        view.appendChild(table(["collective", "group", "device", "count", "operand bytes",
          "sent bytes"
        ], p.collectives.map((c) => [c.op, String(c.group), String(c.device), c.collectives, c
          .bytes, c.sent_bytes])));
      if (p.forecasts.length > 0)
        view.appendChild(table(["memory", "bytes of all replicas", "time", "hidden", "exposed"], p
          .forecasts.map((t) => [t.memory, t.bytes, timeText(t.seconds), timeText(Math.max(0, t
            .seconds - t.exposed_seconds)), timeText(t.exposed_seconds)])));
    }
    tables.feeds(view);
  }

  // ---- Functions
  function functions(view) {
    const rows = report.functions.map((f) => [f.place, f.name, String(f.device), f.stepRows.length,
      f.peak_bytes, f.frame_bytes, f.program_bytes
    ]);
    rows.sort((a, b) => b[6] - a[6]);
    const all = rows.reduce((sum, r) => sum + r[6], 0);
    for (const r of rows) r.push(`${(100 * r[6] / Math.max(1, all)).toFixed(1)} %`);
    view.appendChild(element("p", {}, `${report.functions.length} functions take ` +
      `${grouped(all)} bytes in host memory, the largest first.`));
    view.appendChild(table(["place", "function", "device", "steps", "peak live bytes",
      "frame bytes", "program bytes", "share"
    ], rows));
  }

  const VIEWS = [
    ["Summary", summary],
    ["Memory", memoryView(report, ui)],
    ["Variables", tables.variables],
    ...(report.remote_buffers.length > 0 ? [["Remote", tables.remote]] : []),
    ["Trace", traceView(report, ui)],
    ...(report.pipeline.length > 0 ? [["Schedule", schedule]] : []),
    ["Traffic", traffic],
    ["Kernels", rooflineView(report, ui)],
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
  // An address such as report.html#Trace opens its view.
  const named = VIEWS.findIndex(([name]) => location.hash === `#${name}`);
  sections[Math.max(0, named)].open();
  document.addEventListener("keydown", (e) => {
    const n = Number(e.key);
    if (e.altKey && n >= 1 && n <= sections.length) sections[n - 1].open();
  });
}
