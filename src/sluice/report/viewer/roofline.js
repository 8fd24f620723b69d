// Draws kernels against the limits of the machine.

/// Returns a function that draws the view into a section.
function rooflineView(report, ui) {
  const { element, svg, clear, table, select } = ui;
  const left = 90,
    bottom = 330,
    height = 370;
  const gigaflops = (n) => `${(n / 1e9).toPrecision(3)} GF/s`;

  function roofline(view) {
    // A program on a device, with its kernels.
    const parts = report.programs.flatMap((p) => {
      const all = kernelsOf(report, p);
      return [...new Set(all.map((k) => k.device))].sort((a, b) => a - b).map((d) => ({ program: p,
        device: d, kernels: all.filter((k) => k.device === d) }));
    });
    const place = element("div");
    const draw = (i) => { clear(place);
      const { program, device, kernels } = parts[i];
      const counted = kernels.filter((k) => k.intensity > 0 && k.forecast > 0);
      if (counted.length > 0) chart(place, counted, report.devices[device]);
      list(place, program, kernels); };
    view.appendChild(element("div", { class: "controls" }, select("Kernels of", parts.map((p) =>
      `program ${p.program.name}, device ${p.device}`), draw)));
    view.appendChild(place);
    if (parts.length > 0) draw(0);
    else view.appendChild(element("p", {}, "The plan has no kernels."));
  }

  // Lists all kernels, also those without operations.
  function list(place, program, kernels) {
    const rows = kernels.slice(0, 100);
    place.appendChild(element("p", {}, `Kernels by their time in ${timesOf(program)}.`));
    place.appendChild(table(["kernel", "layer", "source line", "runs", "measured", "forecast",
      "share of kernels", "operations a byte", "in"
    ], rows.map((k) => [kernelName(k), k.layer, k.source, k.runs, k.measured_ns < 0 ? "" :
      timeText(k.measured_ns / 1e9), timeText(k.forecast_ns / 1e9),
      `${(100 * k.share).toFixed(1)} %`, k.intensity > 0 ? k.intensity.toFixed(2) : "", k.place
    ])));
    if (kernels.length > rows.length) place.appendChild(element("p", { class: "faint" },
      `and ${kernels.length - rows.length} faster ones`));
  }

  function chart(place, kernels, device) {
    const workers = Math.max(1, device.workers);
    const flops = report.rates.flops_per_second * workers;
    // A copied byte is read and written, so a kernel moves twice the bytes of a copy.
    const bytes = 2 * report.rates.copy_bytes_per_second * workers;
    const roof = (intensity) => Math.min(flops, bytes * intensity);
    const values = kernels.flatMap((k) => [k.forecast, ...(k.measured ? [k.measured] : [])]);
    const intensities = kernels.map((k) => k.intensity);
    const low = (list) => Math.floor(Math.log10(list.reduce((a, b) => Math.min(a, b))));
    const high = (list) => Math.ceil(Math.log10(list.reduce((a, b) => Math.max(a, b))));
    const [x0, x1] = [low([...intensities, flops / bytes]),
      high([...intensities, flops / bytes * 2])];
    const [y0, y1] = [low([...values, flops]), high([...values, flops])];
    const x = (v) => left + (Math.log10(v) - x0) / Math.max(1, x1 - x0) * (WIDTH - left - 20);
    const y = (v) => bottom - (Math.log10(v) - y0) / Math.max(1, y1 - y0) * (bottom - 20);
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, tabindex: 0,
      role: "application", class: "roofline", "aria-label":
        `${kernels.length} kernels: operations a second over operations a byte. ` +
        "Arrow keys choose a kernel, the slowest first." });
    for (let d = x0; d <= x1; ++d) {
      picture.appendChild(svg("line", { class: "grid", x1: x(10 ** d), x2: x(10 ** d), y1: 20,
        y2: bottom }));
      picture.appendChild(svg("text", { x: x(10 ** d), y: bottom + 16, "text-anchor": "middle" },
        String(Number((10 ** d).toPrecision(1)))));
    }
    for (let d = y0; d <= y1; ++d) {
      picture.appendChild(svg("line", { class: "grid", x1: left, x2: WIDTH - 20, y1: y(10 ** d),
        y2: y(10 ** d) }));
      picture.appendChild(svg("text", { x: left - 6, y: y(10 ** d) + 4, "text-anchor": "end" },
        gigaflops(10 ** d)));
    }
    picture.appendChild(svg("text", { x: WIDTH / 2, y: height - 6, "text-anchor": "middle" },
      "operations a byte"));
    const ridge = flops / bytes;
    const first = Math.max(10 ** x0, 10 ** y0 / bytes);
    picture.appendChild(svg("path", { class: "roof", d: `M${x(first)} ${y(roof(first))}` +
        `L${x(Math.max(first, ridge))} ${y(flops)}L${x(10 ** x1)} ${y(flops)}` }));
    const details = element("div", { "aria-live": "polite" });
    const marks = kernels.map((k, i) => {
      const title = () => svg("title", {}, describe(k));
      const group = svg("g", { class: "kernel" });
      group.appendChild(svg("circle", { class: "forecast", cx: x(k.intensity), cy: y(k.forecast),
        r: 5 }, title()));
      if (k.measured) group.appendChild(svg("rect", { class: "measured", x: x(k.intensity) - 4,
        y: y(k.measured) - 4, width: 8, height: 8 }, title()));
      group.addEventListener("click", () => choose(i));
      picture.appendChild(group);
      return group;
    });
    let at = -1;

    function choose(i) {
      at = Math.max(0, Math.min(kernels.length - 1, i));
      marks.forEach((m, n) => m.classList.toggle("chosen", n === at));
      clear(details);
      details.appendChild(element("div", { class: "details" }, describe(kernels[at])));
    }
    picture.addEventListener("keydown", (e) => {
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
        Home: 0, End: kernels.length - 1 } [e.key];
      if (to === undefined) return;
      e.preventDefault();
      choose(to);
    });
    place.appendChild(picture);
    const limits = `The line is the limit of ${workers} workers: ${gigaflops(flops)} and ` +
      `${(bytes / 1e9).toPrecision(3)} GB/s. Circles are forecasts`;
    place.appendChild(element("p", { class: "faint" }, limits + (report.measured.length > 0 ?
      ", squares the fastest of the measured runs." : ". The report has no measured run.")));
    place.appendChild(details);
  }

  const describe = (k) => `${kernelName(k)} in ${k.place}: ${k.intensity.toFixed(2)} operations a ` +
    `byte, forecast ${gigaflops(k.forecast)} (${timeText(k.forecast_ns / k.runs / 1e9)})` +
    (k.measured ? `, measured ${gigaflops(k.measured)} (` +
      `${timeText(k.measured_ns / k.runs / 1e9)})` : "") + (k.where ? `, ${k.where}` : "");
  return roofline;
}

