// Computes facts of a report for its views.

const VARIABLES = ["variables", "optimizer state", "accumulators"];

/// Returns the memory of an arena's bytes: pinned memory belongs to the host.
const tierOf = (arena) => arena.space === "pinned" ? "host" : arena.space;

/// Returns the modules of a place: "fc.1.weight" has fc, 1 and weight. A range such as
/// "fc.1 … fc.3" is one module, "1 … 3", of the modules that both ends have.
function modulesOf(name) {
  const ends = name.split(" … ").map((end) => end.split(/[./]/));
  if (ends.length === 1) return ends[0];
  const [first, last] = [ends[0], ends[ends.length - 1]];
  let common = 0;
  while (common < first.length - 1 && first[common] === last[common]) ++common;
  return [...first.slice(0, common),
    `${first.slice(common).join(".")} … ${last.slice(common).join(".")}`
  ];
}

/// Returns the tree of variables, their optimizer state and accumulators. A node has a name, bytes
/// by memory, and children. The bytes of a node are the sum of its children's.
function moduleTree(report) {
  const root = { name: report.model, bytes: {}, children: new Map() };
  for (const o of report.objectRows) {
    if (!VARIABLES.includes(o.kind)) continue;
    const [name, ...rest] = o.place.split(", ");
    const tier = tierOf(report.arenas[o.arena]);
    const bytes = o.bytes * (tier === "device" ? 1 : report.replicas);
    let node = root;
    for (const part of [null, ...modulesOf(name), rest.join(", ") || o.kind]) {
      if (part !== null) {
        if (!node.children.has(part)) node.children.set(part, { name: part, bytes: {},
          children: new Map() });
        node = node.children.get(part);
      }
      node.bytes[tier] = (node.bytes[tier] || 0) + bytes;
    }
  }
  return root;
}

/// Returns the entries of a remote buffer that a program accesses, in rows and columns. There is
/// one column for each iteration of the loop around the accesses, if entry and iteration agree in all of
/// them; else there is one column. A cell has the accesses of its entry.
function remoteGrid(report, program, buffer) {
  const rows = program.accesses.filter((a) => a.buffer === buffer);
  const entries = report.remote_entries[buffer];
  const trips = Math.max(1, ...rows.map((a) => a.trips));
  const agrees = entries % trips === 0 && rows.every((a) => a.entry < 0 || (a.trips === trips && a
    .entry % trips === a.turn));
  const columns = agrees ? trips : 1;
  const cells = Array.from({ length: entries }, () => []);
  for (const a of rows)
    if (a.entry >= 0) cells[a.entry].push(a);
  return { columns, rows: entries / columns, cells, unknown: rows.filter((a) => a.entry < 0) };
}

/// Returns the bytes that a run of a program moves between the devices and other memories: `names`
/// and `bytes[from][to]`.
function byteMatrix(report, program) {
  const names = report.devices.map((_, i) => `device ${i}`);
  const index = (name) => names.includes(name) ? names.indexOf(name) : names.push(name) - 1;
  const moves = program.messages.map((m) => [m.from, m.to, m.bytes]);
  for (const t of program.transfers) {
    let other = index("streams");
    if (t.kind.startsWith("remote")) {
      const object = report.objectRows.find((o) => o.name === report.remote_buffers[t.object]);
      other = index(object ? `tier ${tierOf(report.arenas[object.arena])}` : "remote buffers");
    }
    moves.push(t.kind === "stream_in" || t.kind === "remote_load" ? [other, t.device, t.bytes] :
      [t.device, other, t.bytes]);
  }
  const bytes = names.map(() => names.map(() => 0));
  for (const [from, to, n] of moves) bytes[from][to] += n;
  return { names, bytes };
}

/// Returns whether a program has a measured run.
const isMeasured = (program) => program.measured_runs > 0;

/// Returns the words for the times of a program: "the forecast", "a measured run" or "the fastest
/// of 5 measured runs".
const timesOf = (program) => !isMeasured(program) ? "the forecast" : program.measured_runs === 1 ?
  "a measured run" : `the fastest of ${program.measured_runs} measured runs`;

/// Returns the nanoseconds of a kernel in a run of its program, as measured or else as forecast.
const kernelTime = (k) => k.measured_ns >= 0 ? k.measured_ns : k.forecast_ns;

/// Returns the name of a kernel, with a mark if no fast kernel supports its operator here.
const kernelName = (k) => k.name + (k.reference ? " (reference kernel)" : "");

/// Returns the kernels of a program, those that take longest first: their share of all kernels,
/// their operations a byte, and their operations a second in the forecast and in a run. Both are 0
/// without operations or bytes.
function kernelsOf(report, program) {
  const all = program.device_times.reduce(
    (sum, d) => sum + (isMeasured(program) ? Math.max(0, d.measured_ns) : d.forecast_ns), 0);
  return program.kernelRows.map((k) => {
    const f = report.functions[k.function];
    const s = f.stepRows[k.step];
    const counts = s.flops > 0 && s.bytes > 0;
    const rate = (ns) => counts && ns > 0 ? s.flops * k.runs / ns * 1e9 : 0;
    return { ...k, flops: s.flops, bytes: s.bytes, device: f.device, place: f.place || f.name,
      where: s.where, intensity: counts ? s.flops / s.bytes : 0, share: kernelTime(k) / Math.max(
        1, all), forecast: rate(k.forecast_ns), measured: rate(k.measured_ns) };
  });
}

/// Returns the options of a report whose plan does not fit that would make it fit.
const remedies = (report) => report.refusal ? report.suggestions.filter((s) => s.fits).map((s) => s
  .option) : [];

/// Returns the mean number of elements that a feed's ring held before an entry.
function meanOccupancy(feed) {
  const entries = feed.occupancy.reduce((sum, n) => sum + n, 0);
  return feed.occupancy.reduce((sum, n, held) => sum + held * n, 0) / Math.max(1, entries);
}

/// Returns options that were given a value other than their default, as name, value and default.
const changedOptions = (report) => Object.entries(report.options)
  .filter(([name, value]) => report.defaults[name] !== value)
  .map(([name, value]) => [name, value, report.defaults[name] || "depends on others"]);

/// Returns the largest buffers and objects at the peak of a device's memory.
function largestAtPeak(report, memory) {
  const program = report.programs.find((p) => p.name === memory.peak_program);
  const start = program && program.starts.find((s) => s.device === memory.device);
  let live = [];
  if (start) {
    const points = timeline(report, start);
    const peak = points.reduce((best, p) => p.live > best.live ? p : best, points[0]);
    live = liveBuffers(report, peak);
  }
  return [...live, ...heldObjects(report, memory)].sort((a, b) => b.bytes - a.bytes);
}

/// Returns sentences about the largest causes of bytes and seconds, each with its number.
function insights(report) {
  const found = [];
  const percent = (a, b) => `${(100 * a / b).toFixed(1)} %`;
  for (const m of report.memories) {
    if (m.planned_bytes === 0) continue;
    if (m.budget_bytes >= 0 && m.planned_bytes > m.budget_bytes)
      found.push(`${m.name}: ${grouped(m.planned_bytes - m.budget_bytes)} bytes exceed the ` +
        "budget.");
    const [largest] = largestAtPeak(report, m);
    if (m.device >= 0 && largest)
      found.push(`${m.name}: the largest buffer at the peak is ${largest.place || largest.name} ` +
        `(${largest.kind}) with ${grouped(largest.bytes)} bytes, ` +
        `${percent(largest.bytes, m.planned_bytes)} of all.`);
    if (m.gap_bytes > m.planned_bytes / 100)
      found.push(`${m.name}: padding and gaps take ${grouped(m.gap_bytes)} bytes, ` +
        `${percent(m.gap_bytes, m.planned_bytes)} of all.`);
  }
  // A program that has run is the one to make faster.
  const p = report.programs.find(isMeasured) || report.programs[0];
  if (p) {
    const run = timesOf(p);
    const { exposed, all } = transferTimes(p);
    if (exposed > 0)
      found.push(`Program ${p.name}: ${timeText(exposed)} of transfers are exposed, ` +
        `${percent(exposed, all)} of their time in ${run}.`);
    const { device, waits, seconds: whole } = longestWait(p);
    if (waits > 0 && waits > whole / 100)
      found.push(`Program ${p.name}: device ${device} waits the longest, ${timeText(waits)} ` +
        `(${percent(waits, whole)} of ${run}).`);
    const together = firstTogether(p);
    if (together > 0)
      found.push(`Program ${p.name}: all devices run blocks at once for the first time after ` +
        `${timeText(together / 1e9)} (${percent(together / 1e9, p.trace.seconds)} of the planned ` +
        "trace).");
    const times = p.device_times.map((d) => isMeasured(p) ? Math.max(0, d.measured_ns) : d
      .forecast_ns);
    const kernels = times.reduce((a, b) => a + b, 0);
    const [name, time] = slowestOp(p);
    if (time > 0) found.push(`Program ${p.name}: kernels of ${name} take the longest, ` +
      `${timeText(time / 1e9)} (${percent(time, kernels)} of all kernels in ${run}).`);
    const reference = p.device_times.reduce((sum, d) => sum + Math.max(0, d.reference_ns), 0);
    if (reference > kernels / 100) {
      const ops = [...new Set(p.kernelRows.filter((k) => k.reference).map((k) => k.name))];
      found.push(`Program ${p.name}: reference kernels take ${timeText(reference / 1e9)} ` +
        `(${percent(reference, kernels)} of all kernels in ${run}): no fast kernel supports ` +
        `${ops.slice(0, 5).join(", ")} with these dtypes, shapes and options.`);
    }
    const most = Math.max(...times), mean = kernels / times.length;
    if (isMeasured(p) && times.length > 1 && most > 1.01 * mean)
      found.push(`Program ${p.name}: device ${times.indexOf(most)} computes the longest, ` +
        `${timeText(most / 1e9)}, ${(most / mean).toFixed(2)} times the mean of all devices in ` +
        `${run}.`);
  }
  for (const s of report.pipeline)
    if (s.imbalance > 1.01 && !isMeasured(p))
      found.push(`Stage ${s.slowest_stage} (${s.stages[s.slowest_stage].blocks}) is the slowest: ` +
        `${s.imbalance.toFixed(2)} times the mean of all stages.`);
  for (const f of report.feeds) {
    const waits = f.waits_for_host.seconds + f.waits_at_end.seconds;
    if (waits > f.run_seconds / 100)
      found.push(`Feed ${f.name}: the program waited ${timeText(waits)} for its ` +
        `${f.input ? "source" : "sink"}, in runs of ${timeText(f.run_seconds)}.`);
  }
  return found;
}

/// Returns the nanosecond at which all devices of a trace first run parts of blocks at once; 0 for
/// one device, and if they never do.
function firstTogether(program) {
  const busy = new Map();
  for (const e of program.events) {
    if (e.kind !== "part") continue;
    if (!busy.has(e.device)) busy.set(e.device, []);
    busy.get(e.device).push(e);
  }
  const lanes = [...busy.values()];
  if (lanes.length < Math.max(2, program.starts.length)) return 0;
  const at = lanes.map(() => 0);
  for (let time = 0;;) {
    let next = time;
    for (const [i, lane] of lanes.entries()) {
      while (at[i] < lane.length && lane[at[i]].end_ns <= time) ++at[i];
      if (at[i] === lane.length) return 0;
      next = Math.max(next, lane[at[i]].begin_ns);
    }
    if (next === time) return time;
    time = next;
  }
}

/// Returns the operator whose kernels take the longest, and their nanoseconds in a run.
function slowestOp(program) {
  const sums = new Map();
  for (const k of program.kernelRows) sums.set(k.name, (sums.get(k.name) || 0) + kernelTime(k));
  return [...sums].sort((a, b) => b[1] - a[1])[0] || ["", 0];
}

/// Returns the seconds of a program's transfers, and those of them in which their device does not
/// compute: of a measured run, or else of the planned trace.
function transferTimes(p) {
  const measured = p.device_times.filter((d) => d.exposed_ns >= 0);
  if (measured.length > 0)
    return { exposed: measured.reduce((s, d) => s + d.exposed_ns, 0) / 1e9,
      all: measured.reduce((s, d) => s + d.transfers_ns, 0) / 1e9 };
  const exposed = p.overlaps.reduce((s, o) => s + o.exposed_seconds, 0);
  return { exposed, all: exposed + p.overlaps.reduce((s, o) => s + o.hidden_seconds, 0) };
}

/// Returns the device of a program that waits the longest, its seconds of waiting, and those of the
/// run: of a measured run, or else of the planned trace.
function longestWait(p) {
  const waits = new Map();
  const measured = p.device_times.some((d) => d.waits_ns >= 0) && p.measured_ns >= 0;
  if (measured) {
    for (const d of p.device_times) waits.set(d.device, d.waits_ns);
  } else {
    for (const e of p.events)
      if (e.kind === "wait") waits.set(e.device,
        (waits.get(e.device) || 0) + e.end_ns - e.begin_ns);
  }
  const [device, time] = [...waits].sort((a, b) => b[1] - a[1])[0] || [0, 0];
  return { device, waits: time / 1e9, seconds: measured ? p.measured_ns / 1e9 : p.trace.seconds };
}

