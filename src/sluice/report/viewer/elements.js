// Colours, units and elements of the page, for all views.

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

/// Returns functions that make elements of a document.
function makeUi(document) {
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
  return { element, svg, clear, table, select, legend };
}

