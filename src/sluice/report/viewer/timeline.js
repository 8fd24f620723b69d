"use strict";
// Computes timelines from the data of a report (docs/report_schema.md). viewer.js draws them.

const MOST_POINTS = 20000;

/// Returns the rows of a table as objects.
function rowsOf(table) {
  return table.rows.map((row) => {
    const object = {};
    for (let i = 0; i < row.length; ++i) object[table.columns[i]] = row[i];
    return object;
  });
}

/// Returns how often a timeline shows the callees of a step: once for each of equal blocks.
const timesShown = (step) => Math.max(1, (step.parts || []).length);

/// Returns the number of points of a function's timeline with all callees.
function pointCounts(report) {
  const counts = new Map();
  const count = (f) => {
    if (!counts.has(f)) {
      let sum = 0;
      for (const step of report.functions[f].stepRows)
        sum += timesShown(step) * (step.calls.length === 0 ? 1 :
          step.calls.reduce((n, c) => n + Math.max(1, count(c)), 0));
      counts.set(f, sum);
    }
    return counts.get(f);
  };
  return count;
}

/// Returns the timeline of a program on a device. A point is a step: its activations (function and
/// step, outermost first), the live bytes, and the part of a block that it runs. A loop stands for
/// all its iterations, but a loop over equal blocks is shown once for each block. A call whose steps
/// would be too many is one point with its callee's peak.
function timeline(report, start) {
  const count = pointCounts(report);
  const points = [];
  // `outer` is the call or the iteration of a loop around f that runs one part, or null.
  const walk = (f, path, base, trips, room, outer) => {
    for (const [s, step] of report.functions[f].stepRows.entries()) {
      const here = [...path, [f, s]];
      const live = base + step.live_bytes;
      const shown = timesShown(step);
      for (let turn = 0; turn < shown; ++turn) {
        const own = (step.parts || []).length === 0 ? null :
          { part: step.parts[turn], kernel: step.calls.length === 0 };
        const runs = outer || own;
        if (step.calls.length === 0) points.push({ path: here, live, trips, runs });
        for (const callee of step.calls) {
          const size = count(callee);
          if (size === 0 || size > room) {
            points.push({ path: here, live: live + report.functions[callee].peak_bytes, trips,
              folded: size, runs });
          } else {
            walk(callee, here, live, trips * step.trips / shown, room, runs);
          }
        }
      }
    }
  };
  // The largest size of a call that is shown step by step so that all points fit.
  let room = Infinity;
  for (let tries = 0; tries < 40 && count(start.function) > MOST_POINTS; ++tries) {
    room = room === Infinity ? count(start.function) / 2 : room / 2;
    if (shown(report, start.function, count, room) <= MOST_POINTS) break;
  }
  walk(start.function, [], 0, 1, room, null);
  return points;
}

function shown(report, f, count, room, known = new Map()) {
  if (known.has(f)) return known.get(f);
  let sum = 0;
  for (const step of report.functions[f].stepRows)
    sum += timesShown(step) * (step.calls.length === 0 ? 1 :
      step.calls.reduce((n, c) => n + (count(c) === 0 || count(c) > room ? 1 :
        shown(report, c, count, room, known)), 0));
  known.set(f, sum);
  return sum;
}

/// Returns the stretches of points that run one part of a block: {part, from, to}, where `to` is
/// after the last point. A call, and an iteration of a loop over blocks, has a stretch of its own. A
/// point without a part belongs to the part before it. Loads, waits and other steps that prepare
/// a part belong to the part after them.
function partsOf(report, points) {
  const prepares = (point) => {
    const [f, s] = point.path[point.path.length - 1];
    const step = report.functions[f].stepRows[s];
    return ["remote_load", "stream_in", "receive", "wait"].includes(step.kind) ||
      ["Init", "Copy", "ReplicatedAllGather"].includes(step.name);
  };
  const bands = [];
  let after = 0; // After the last point of the last band.
  for (let i = 0; i < points.length; ++i) {
    const runs = points[i].runs;
    if (runs === null) continue;
    const last = bands[bands.length - 1];
    const goesOn = last && (last.runs === runs ||
      last.runs.kernel && runs.kernel && last.runs.part === runs.part);
    if (goesOn) {
      last.to = i + 1;
    } else {
      let from = i;
      while (from > after && prepares(points[from - 1])) --from;
      if (last) last.to = from;
      bands.push({ runs, part: runs.part, from: last ? from : 0, to: i + 1 });
    }
    after = i + 1;
  }
  if (bands.length > 0) bands[bands.length - 1].to = points.length;
  return bands;
}

/// Returns the live buffers of a point, each with the function that it belongs to.
function liveBuffers(report, point) {
  return point.path.flatMap(([f, s]) => report.functions[f].bufferRows
    .filter((b) => b.begin <= s && s < b.end)
    .map((b) => ({ ...b, owner: f })));
}

/// Returns the objects that a memory holds for the life of the program.
function heldObjects(report, memory) {
  return report.objectRows.filter((o) => belongs(report.arenas[o.arena], memory));
}

function belongs(arena, memory) {
  if (memory.device >= 0) return arena.space === "device" && arena.device === memory.device;
  const space = memory.name.replace("tier ", "");
  return arena.space === space || (space === "host" && arena.space === "pinned");
}

const VERSION = 1;

/// Reads the text of a second report.json. Returns the prepared report, or the sentence that
/// refuses it.
function readSecond(text, first) {
  let report;
  try {
    report = JSON.parse(text);
  } catch {
    return "The file must be a report.json, but it is not JSON.";
  }
  if (report === null || report.schema !== "sluice-report")
    return "The file must be a report.json; it has no schema sluice-report.";
  if (report.version !== VERSION)
    return `The version of the report must be ${VERSION}, got ${report.version}; write the ` +
      "report again.";
  if (report.model !== first.model)
    return `The report must be of ${first.model}, got ${report.model}.`;
  try {
    return prepare(report);
  } catch {
    return "The file must be a whole report.json; a part of it is missing.";
  }
}

function prepare(report) {
  for (const f of report.functions) {
    f.stepRows = rowsOf(f.steps);
    f.bufferRows = rowsOf(f.buffers);
  }
  report.objectRows = rowsOf(report.objects);
  for (const p of report.programs) {
    p.events = rowsOf(p.trace.events);
    p.accesses = rowsOf(p.remote.accesses);
    p.kernelRows = rowsOf(p.kernels);
  }
  for (const m of report.measured) {
    m.events = rowsOf(m.trace.events);
    m.name = `${m.program} (measured, replica ${m.replica})`;
    m.starts = report.programs.find((p) => p.name === m.program).starts;
  }
  report.programs.sort((a, b) => (b.name === "train") - (a.name === "train"));
  return report;
}
