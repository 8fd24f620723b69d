// Draws trees and grids.

/// Returns functions that draw the tree of variables and the grid of remote buffers.
function tableViews(report, ui) {
  const { element, clear, table, select } = ui;

  // ---- Tree of variables
  function variables(view) {
    const root = moduleTree(report);
    const tiers = ["device", "host", "file"].filter((t) => root.bytes[t] > 0);
    const head = element("tr", {}, element("th", { scope: "col" }, "module"), ...tiers.map((t) =>
      element("th", { scope: "col", class: "number" }, `${t} bytes`)));
    const body = element("tbody");
    const rows = [];
    const add = (node, level, parent) => {
      const mark = element("span", { class: "mark", "aria-hidden": "true" });
      const tr = element("tr", { role: "row", tabindex: rows.length === 0 ? 0 : -1,
          "aria-level": level },
        element("td", { role: "gridcell", style: `padding-left: ${(level - 1) * 1.2}em` }, mark,
          node.name), ...tiers.map((t) => element("td", { role: "gridcell", class: "number" },
          grouped(node.bytes[t] || 0))));
      const row = { tr, mark, parent, open: level === 1, inner: node.children.size > 0 };
      tr.addEventListener("click", () => { focus(row);
        toggle(row, !row.open); });
      tr.addEventListener("keydown", (e) => act(row, e));
      rows.push(row);
      body.appendChild(tr);
      for (const child of node.children.values()) add(child, level + 1, row);
    };
    const shown = (row) => !row.parent || (row.parent.open && shown(row.parent));
    const update = () => rows.forEach((row) => {
      row.tr.hidden = !shown(row);
      row.mark.textContent = row.inner ? (row.open ? "▾ " : "▸ ") : "";
      if (row.inner) row.tr.setAttribute("aria-expanded", String(row.open));
    });
    const toggle = (row, open) => { if (row.inner) row.open = open;
      update(); };
    const focus = (row) => {
      rows.forEach((other) => other.tr.setAttribute("tabindex", other === row ? 0 : -1));
      row.tr.focus();
    };

    function act(row, e) {
      const visible = rows.filter(shown);
      const at = visible.indexOf(row);
      const keys = {
        ArrowDown: () => focus(visible[Math.min(visible.length - 1, at + 1)]),
        ArrowUp: () => focus(visible[Math.max(0, at - 1)]),
        Home: () => focus(visible[0]),
        End: () => focus(visible[visible.length - 1]),
        ArrowRight: () => row.inner && !row.open ? toggle(row, true) :
          focus(visible[Math.min(visible.length - 1, at + 1)]),
        ArrowLeft: () => row.inner && row.open ? toggle(row, false) : row.parent && focus(row
          .parent),
        Enter: () => toggle(row, !row.open),
        " ": () => toggle(row, !row.open)
      };
      if (!keys[e.key]) return;
      e.preventDefault();
      keys[e.key]();
    }
    add(root, 1, null);
    update();
    view.appendChild(element("p", { class: "faint" },
      "Variables, optimizer state and accumulators. The arrow keys move, open and close." +
      (report.replicas > 1 ? " Device bytes are of one replica, others of all." : "")));
    view.appendChild(element("div", { class: "scroll" }, element("table", { role: "treegrid",
      class: "tree", "aria-label": "Bytes of variables by module" }, element("thead", {}, head),
      body)));
  }

  // ---- Remote buffers
  function remote(view) {
    const place = element("div");
    const objects = new Map(report.objectRows.map((o) => [o.name, o]));
    const names = report.remote_buffers.map((name) =>
      `${name}: ${objects.has(name) ? objects.get(name).place : ""}`);
    let program = 0;
    // The buffer with the most entries shows the most.
    let buffer = report.remote_entries.indexOf(Math.max(...report.remote_entries));
    const draw = () => { clear(place);
      grid(place, report.programs[program], buffer); };
    const buffers = select("Remote buffer", names, (i) => { buffer = i;
      draw(); });
    buffers.querySelector("select").value = buffer;
    view.appendChild(element("div", { class: "controls" }, select("Program", report.programs.map((
      p) => p.name), (i) => { program = i;
      draw(); }), buffers));
    view.appendChild(place);
    draw();
  }

  function grid(place, program, buffer) {
    const most = 64;
    const g = remoteGrid(report, program, buffer);
    const functionOf = (a) => report.functions[a.function];
    const stores = (a) => functionOf(a).stepRows[a.step].kind === "remote_store";
    const label = (a) => functionOf(a).place || functionOf(a).name;
    const text = (a) => `${stores(a) ? "written" : "read"} by ${label(a)}, step ${a.step}, on ` +
      `device ${functionOf(a).device}` +
      (a.trips > 1 ? `, iteration ${a.turn + 1} of ${a.trips}` : "") +
      (a.count > 1 ? `, ${grouped(a.count)} times a run` : "");
    const unique = (accesses) => [...new Set(accesses.map((a) => label(a).split(", a ")[0]))];
    const details = element("div", { "aria-live": "polite" });
    const choose = (entry) => {
      clear(details);
      details.appendChild(element("div", { class: "details" }, element("p", {}, element("strong",
        {}, `entry ${entry}`)), ...(g.cells[entry].length ? g.cells[entry].map((a) => element(
        "p", {}, text(a))) : [element("p", {}, "not accessed by this program")])));
    };
    const columns = Math.min(most, g.columns);
    const head = element("tr", {}, element("th", { scope: "col" }, "row"));
    for (let c = 0; c < columns; ++c) head.appendChild(element("th", { scope: "col" },
      g.columns > 1 ? `iteration ${c + 1}` : "entry"));
    const body = element("tbody");
    for (let r = 0; r < Math.min(most, g.rows); ++r) {
      const tr = element("tr", {}, element("th", { scope: "row" }, String(r)));
      for (let c = 0; c < columns; ++c) {
        const entry = r * g.columns + c;
        const write = unique(g.cells[entry].filter(stores)),
          read = unique(g.cells[entry].filter((a) => !stores(a)));
        const td = element("td", { tabindex: 0, class: "entry", "data-entry": entry });
        if (write.length > 0) td.appendChild(element("div", { class: "writer" },
          `W ${write.join(", ")}`));
        if (read.length > 0) td.appendChild(element("div", { class: "reader" },
          `R ${read.join(", ")}`));
        if (write.length + read.length === 0) td.appendChild(document.createTextNode("–"));
        td.addEventListener("click", () => choose(entry));
        td.addEventListener("focus", () => choose(entry));
        tr.appendChild(td);
      }
      body.appendChild(tr);
    }
    place.appendChild(element("p", {},
      `${grouped(g.rows)} rows of ${grouped(g.columns)} entries. ` + "W has written an entry, R reads it. A run is of replica 0."));
    place.appendChild(element("div", { class: "scroll" }, element("table", { class: "remote" },
      element("thead", {}, head), body)));
    place.appendChild(details);
    for (const a of g.unknown) place.appendChild(element("p", {},
      `An entry whose number is in device memory is ${text(a)}.`));
    if (g.rows > most || g.columns > most) place.appendChild(element("p", { class: "faint" },
      `The table has the first ${most} rows and columns.`));
    if (!program.remote.complete) place.appendChild(element("p", { class: "faint" },
      "The report leaves accesses out, because the program has too many."));
  }

  // ---- Bytes between devices
  function matrix(place, program) {
    const m = byteMatrix(report, program);
    if (m.bytes.every((row) => row.every((n) => n === 0))) return;
    place.appendChild(element("h2", {}, `Bytes of a run of ${program.name} from row to column`));
    const grid_ = table(["from \\ to", ...m.names], m.names.map((name, i) => [name, ...m.bytes[i]
      .map((n) => n === 0 ? "" : n)
    ]));
    grid_.querySelector("table").classList.add("matrix");
    place.appendChild(grid_);
    if (program.overlaps.length === 0) return;
    place.appendChild(element("h2", {}, `Transfers of ${program.name}, overlapped with computation`));
    const rows = table(["transfer", "stream or remote buffer", "device", "count", "hidden",
      "exposed"
    ], [...program.overlaps].sort((a, b) => b.exposed_seconds - a.exposed_seconds).map((o) => [o
      .kind, (o.kind.startsWith("stream") ? report.streams : report.remote_buffers)[o.object],
      String(o.device), o.transfers, timeText(o.hidden_seconds), timeText(o.exposed_seconds)
    ]));
    rows.querySelector("table").classList.add("overlaps");
    place.appendChild(rows);
    place.appendChild(element("p", { class: "faint" },
      "A transfer is hidden while its device runs a kernel or a collective in the planned trace." +
      (program.trace.complete ? "" : " That trace ends before the run does.")));
  }

  // ---- Feeds
  function feeds(place) {
    if (report.feeds.length === 0) return;
    place.appendChild(element("h2", {}, "Feeds"));
    const waits = (w) => w.count === 0 ? "never" : `${timeText(w.seconds)} in ${grouped(w.count)}`;
    const rows = table(["feed", "direction", "elements moved", "elements used", "a second", "bytes",
      "in the ring", "slots", "program waits", "host waits", "runs wait at their end"
    ], report.feeds.map((f) => [f.name, f.input ? "in" : "out", f.moved_elements, f.used_elements,
      f.host_seconds > 0 ? (f.moved_elements / f.host_seconds).toFixed(1) : "", f.moved_bytes,
      meanOccupancy(f).toFixed(2), f.slots, waits(f.waits_for_host), waits(f
      .waits_for_program), waits(f.waits_at_end)
    ]));
    rows.querySelector("table").classList.add("feeds");
    place.appendChild(rows);
    place.appendChild(element("p", { class: "faint" },
      "The host is the source of an infeed or the sink of an outfeed; the elements a second are " +
      "those that it moves alone. A program waits for a ring that is empty (in) or full (out), " +
      "the host for one that is full or empty. In the ring: the mean before an entry."));
  }
  return { variables, remote, matrix, feeds };
}

