(() => {
"use strict";

// --- theme ---------------------------------------------------------------------------------------

const root = document.documentElement;
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const CHROME = {
  light: { back: "#FFFFFF", ink: "#1F2328", soft: "#57606A", grid: "#E6EAEE", edge: "#AFB8C1" },
  dark: { back: "#161B22", ink: "#E6EDF3", soft: "#9DA7B3", grid: "#2A313A", edge: "#4A535E" },
};

// Reading or keeping the choice may be forbidden for pages opened from disk; then it is not kept.
function remembered() {
  try { return localStorage.getItem("accelegrad-theme"); } catch { return null; }
}
function remember(theme) {
  try { localStorage.setItem("accelegrad-theme", theme); } catch { /* not kept */ }
}
let chosen = remembered();
let printing = false;
function theme() {
  if (printing) return "light";
  return chosen ?? (wantsDark.matches ? "dark" : "light");
}
function showTheme() {
  root.dataset.theme = theme();
  document.querySelector("#theme span").textContent = theme() === "dark" ? "Light" : "Dark";
}

// --- figures -------------------------------------------------------------------------------------

const NARROWEST = 200; // a column of panels is never narrower: rows are broken before
const LINE = 17; // the height of a line of a panel's title
const canvas = document.createElement("canvas").getContext("2d");

const figures = JSON.parse(document.getElementById("data").textContent).map((figure) => {
  const section = document.getElementById(figure.id);
  return {
    ...figure,
    section,
    plot: section.querySelector(".plot"),
    axis: null, // as each panel has it, until a switch is pressed
    scale: null,
    drag: "zoom",
    hidden: new Set(),
    words: [],
    enlarged: null,
    revision: 0, // a zoom is kept while this stays
  };
});

// plotly reads some tags, and %{...} in hover texts; names are neither.
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
function inTemplate(text) {
  return plain(text).replaceAll("%{", "%\u200b{");
}
function clear(hex, alpha) {
  const part = (i) => parseInt(hex.slice(i, i + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

function axisOf(figure, panel) {
  return panel.x_axes.includes(figure.axis) ? figure.axis : panel.x_axes[0];
}
function isLog(figure, panel) {
  return figure.scale === null ? panel.log_x : figure.scale === "log";
}

// The rows as they are drawn: one panel when it is enlarged, broken where the page is narrow.
function rowsOf(figure, width) {
  if (figure.enlarged) return [[figure.enlarged]];
  const fit = Math.max(1, Math.floor(width / NARROWEST));
  return figure.rows.flatMap((row) => {
    const size = Math.ceil(row.length / Math.ceil(row.length / fit));
    const parts = [];
    for (let i = 0; i < row.length; i += size) parts.push(row.slice(i, i + size));
    return parts;
  });
}

function titleLines(text, width) {
  canvas.font = "600 12.5px system-ui, sans-serif";
  let lines = 1;
  let used = 0;
  for (const word of text.split(/\s+/)) {
    const size = canvas.measureText(`${word} `).width * 1.04;
    if (used > 0 && used + size > width) { lines += 1; used = 0; }
    used += size;
    while (used > width) { lines += 1; used -= width; }
  }
  return lines;
}

// Where everything is, in pixels from the top left corner.
function geometry(figure, width) {
  const rows = rowsOf(figure, width);
  const columns = Math.max(...rows.map((row) => row.length));
  const labelled = (row, j) => j === 0 || row[j - 1].y_label !== row[j].y_label;
  const left = Array.from({ length: columns }, (_, j) =>
    rows.some((row) => j < row.length && labelled(row, j)) ? 62 : 46);
  const right = 14;
  const space = width - left.reduce((sum, part) => sum + part, 0) - columns * right;
  const across = Math.min(space / columns, 1200);
  const tallest = figure.enlarged ? 520 : columns === 1 ? 400 : columns === 2 ? 340 : 280;
  const down = Math.round(Math.max(165, Math.min(tallest, 0.8 * across)));
  const panels = [];
  let top = 4;
  for (const row of rows) {
    const head = LINE * Math.max(...row.map((panel) => titleLines(panel.title, across - 28))) + 7;
    let start = 0;
    row.forEach((panel, j) => {
      start += left[j];
      panels.push({ panel, labelled: labelled(row, j), x: start, y: top + head, head, across, down });
      start += across + right;
    });
    top += head + down + 50;
  }
  return { width, height: top, panels };
}

function colourOf(figure, entry) {
  return figure.entries[entry].colour[theme()];
}
function nameOf(entry) {
  return entry.variant ? `${entry.method}, ${entry.variant}` : entry.method;
}

// An array's numbers in words, for hovering; made once.
function wordsOf(figure, index) {
  figure.words[index] ??= figure.arrays[index].map((value) => {
    if (value === null) return "-";
    const short = value >= 1e-3 && value < 1e5;
    return short ? String(Number(value.toPrecision(5))) : value.toExponential(4);
  });
  return figure.words[index];
}

function curveTrace(figure, panel, line, number) {
  const entry = figure.entries[line.entry];
  const axis = axisOf(figure, panel);
  const log = isLog(figure, panel);
  const colour = colourOf(figure, line.entry);
  const others = panel.x_axes.filter((name) => name !== axis);
  const extra = others.map((name) => figure.arrays[line.x[name]]);
  extra.push(wordsOf(figure, line.y));
  if (line.band) extra.push(...line.band.map((edge) => wordsOf(figure, edge)));
  const y = figure.arrays[line.y];
  const marked = new Set(line.marked);
  const row = (name, value) => `<br>${inTemplate(name)}: ${value}`;
  const from = others.length;
  const hover = `<b>${inTemplate(nameOf(entry))}</b>`
    + row(axis, "%{x:,.7~r}")
    + others.map((name, i) => row(name, `%{customdata[${i}]:,.7~r}`)).join("")
    + row(panel.y_label, `%{customdata[${from}]}`)
    + (line.band ? row("band", `%{customdata[${from + 1}]} to %{customdata[${from + 2}]}`) : "")
    + (line.note ? `<br><i>${inTemplate(line.note)}</i>` : "")
    + "<extra></extra>";
  return {
    type: "scatter",
    mode: marked.size ? "lines+markers" : "lines",
    name: plain(nameOf(entry)),
    legendgroup: String(line.entry),
    meta: { entry: line.entry, kind: "curve" },
    xaxis: `x${number}`,
    yaxis: `y${number}`,
    x: figure.arrays[line.x[axis]].map((value) => (log && value <= 0 ? null : value)),
    y,
    customdata: y.map((_, i) => extra.map((values) => values[i])),
    line: { color: colour, dash: entry.dash, width: 2 },
    marker: { color: colour, size: marked.size ? y.map((_, i) => (marked.has(i) ? 6 : 0)) : 6, line: { width: 0 } },
    connectgaps: false,
    hovertemplate: hover,
    visible: figure.hidden.has(line.entry) ? "legendonly" : true,
  };
}

// A band is a polygon for each stretch without gaps.
function bandTrace(figure, panel, line, number) {
  const log = isLog(figure, panel);
  const xs = figure.arrays[line.x[axisOf(figure, panel)]];
  const [low, high] = line.band.map((edge) => figure.arrays[edge]);
  const x = [];
  const y = [];
  let stretch = [];
  const close = () => {
    if (stretch.length > 1) {
      if (x.length) { x.push(null); y.push(null); }
      const back = stretch.toReversed();
      x.push(...stretch.map((i) => xs[i]), ...back.map((i) => xs[i]));
      y.push(...stretch.map((i) => high[i]), ...back.map((i) => low[i]));
    }
    stretch = [];
  };
  xs.forEach((value, i) => {
    const there = value !== null && low[i] !== null && high[i] !== null && !(log && value <= 0);
    if (there) stretch.push(i); else close();
  });
  close();
  return {
    type: "scatter",
    mode: "lines",
    legendgroup: String(line.entry),
    meta: { entry: line.entry, kind: "band" },
    xaxis: `x${number}`,
    yaxis: `y${number}`,
    x,
    y,
    fill: "toself",
    fillcolor: clear(colourOf(figure, line.entry), 0.16),
    line: { width: 0 },
    hoverinfo: "skip",
    showlegend: false,
    visible: figure.hidden.has(line.entry) ? "legendonly" : true,
  };
}

// How many ticks an axis gets. plotly sets them at powers of ten only when there are more than 0.7
// decades for each, and at every one when there is at most one; their labels it makes larger.
function ticks(log, room, arrays, padded) {
  if (!log) return { nticks: Math.max(3, Math.round(room)), tickfont: { size: 11 } };
  const logs = arrays.flat().filter((value) => value > 0).map(Math.log10);
  const extreme = (pick) => logs.reduce((a, b) => pick(a, b), logs[0] ?? 0);
  const decades = (extreme(Math.max) - extreme(Math.min)) * (padded ? 1.12 : 1);
  // Within a decade or so: at 1, 2 and 5, or at every digit, and upright.
  if (decades <= 1.4) {
    return { dtick: decades > 0.5 ? "D2" : "D1", tickangle: 0, tickfont: { size: 9.5 } };
  }
  const most = Math.ceil(decades);
  return { nticks: Math.max(2, Math.min(Math.round(room), most)), tickfont: { size: 9.5 } };
}

function build(figure, place) {
  const look = CHROME[theme()];
  const bands = [];
  const curves = [];
  const annotations = [];
  const layout = {
    width: place.width,
    height: place.height,
    margin: { l: 0, r: 0, t: 0, b: 0, pad: 0 },
    paper_bgcolor: look.back,
    plot_bgcolor: look.back,
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 11, color: look.soft },
    showlegend: false,
    hovermode: "closest",
    hoverdistance: 30,
    hoverlabel: { bgcolor: look.back, bordercolor: look.edge, font: { color: look.ink, size: 12 }, align: "left", namelength: -1 },
    dragmode: figure.drag,
    uirevision: figure.revision,
    annotations,
  };
  const axes = {
    showline: true, linecolor: look.edge, gridcolor: look.grid, zeroline: false, ticks: "outside",
    ticklen: 4, tickcolor: look.edge, automargin: false,
  };
  place.panels.forEach(({ panel, labelled, x, y, across, down }, i) => {
    const number = i === 0 ? "" : String(i + 1);
    const log = isLog(figure, panel);
    const axis = axisOf(figure, panel);
    const marked = panel.lines.some((line) => line.marked.length > 0);
    const title = { font: { color: look.ink, size: 12 } };
    layout[`xaxis${number}`] = {
      ...axes,
      type: log ? "log" : "linear",
      exponentformat: log ? "power" : "SI",
      anchor: `y${number}`,
      domain: [x / place.width, (x + across) / place.width],
      title: { ...title, text: plain(axis), standoff: 6 },
      ...ticks(log, across / (log ? 36 : 55), panel.lines.map((line) => figure.arrays[line.x[axis]]), marked),
      uirevision: `${figure.revision} ${axis} ${log}`,
    };
    layout[`yaxis${number}`] = {
      ...axes,
      type: panel.log_y ? "log" : "linear",
      rangemode: panel.log_y ? "normal" : "tozero",
      exponentformat: "power",
      anchor: `x${number}`,
      domain: [1 - (y + down) / place.height, 1 - y / place.height],
      title: { ...title, text: labelled ? plain(panel.y_label) : "", standoff: 4 },
      ...ticks(panel.log_y, down / (panel.log_y ? 24 : 40), panel.lines.map((line) => figure.arrays[line.y]), true),
    };
    let drawn = 0;
    for (const line of panel.lines) {
      if (line.band) bands.push(bandTrace(figure, panel, line, number));
      const trace = curveTrace(figure, panel, line, number);
      drawn += trace.x.some((value, k) => value !== null && trace.y[k] !== null);
      curves.push(trace);
    }
    if (!drawn) {
      const bare = { ticks: "", showticklabels: false, showgrid: false };
      Object.assign(layout[`xaxis${number}`], bare);
      Object.assign(layout[`yaxis${number}`], bare);
      annotations.push({
        text: "nothing to draw", showarrow: false, xref: `x${number} domain`, yref: `y${number} domain`,
        x: 0.5, y: 0.5, font: { size: 12, color: look.soft },
      });
    }
  });
  return { data: [...bands, ...curves], layout };
}

// The titles of the panels, with a button that enlarges one.
function placeHeads(figure, place) {
  const focused = figure.plot.contains(document.activeElement) && document.activeElement.dataset.panel;
  figure.plot.querySelectorAll(".panel-head").forEach((head) => head.remove());
  const alone = figure.rows.length === 1 && figure.rows[0].length === 1;
  for (const { panel, x, y, head, across } of place.panels) {
    const box = document.createElement("div");
    box.className = "panel-head";
    box.style.cssText = `left:${x}px;top:${y - head}px;width:${across}px;height:${head - 4}px`;
    const title = document.createElement("h3");
    title.textContent = panel.title;
    box.append(title);
    if (!alone) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.panel = panel.title;
      button.textContent = figure.enlarged ? "← all panels" : "⤢";
      button.className = figure.enlarged ? "back" : "";
      button.title = figure.enlarged ? "Back to all panels" : "Enlarge this panel";
      button.setAttribute("aria-label", `${button.title}: ${panel.title}`);
      button.addEventListener("click", () => {
        figure.enlarged = figure.enlarged ? null : panel;
        figure.revision += 1;
        draw(figure);
      });
      box.append(button);
      figure.plot.append(box);
      if (focused === panel.title) button.focus();
    } else {
      figure.plot.append(box);
    }
  }
}

const PRINTED = 1030; // A4 landscape without its margins

function draw(figure) {
  const width = printing ? PRINTED : Math.floor(figure.plot.clientWidth);
  const place = geometry(figure, width);
  figure.plot.style.height = `${place.height}px`;
  figure.width = width;
  const { data, layout } = build(figure, place);
  const config = { displayModeBar: false, doubleClick: "reset", responsive: false };
  if (!figure.plot.data) figure.plot.replaceChildren();
  Plotly.react(figure.plot, data, layout, config);
  placeHeads(figure, place);
  showSwitches(figure);
}

function showSwitches(figure) {
  const press = (button, pressed) => button.setAttribute("aria-pressed", String(pressed));
  for (const button of figure.section.querySelectorAll("button[data-axis]")) {
    if (figure.axis !== null) press(button, button.dataset.axis === figure.axis);
  }
  for (const button of figure.section.querySelectorAll("button[data-scale]")) {
    if (figure.scale !== null) press(button, button.dataset.scale === figure.scale);
  }
  for (const button of figure.section.querySelectorAll("button[data-drag]")) {
    press(button, button.dataset.drag === figure.drag);
  }
  for (const button of figure.section.querySelectorAll("button[data-entry]")) {
    press(button, !figure.hidden.has(Number(button.dataset.entry)));
  }
  figure.section.querySelector('[data-do="all"]').hidden = figure.hidden.size === 0;
}

// While a name in the legend is pointed at, the other curves step back.
function light(figure, entries) {
  figure.plot.classList.toggle("dimmed", entries !== null);
  for (const group of figure.plot.querySelectorAll(".scatterlayer .trace")) {
    const trace = group.__data__?.[0]?.trace;
    group.classList.toggle("lit", Boolean(entries?.includes(trace?.meta?.entry)));
  }
}

function listen(figure) {
  const places = [...figure.entries.keys()];
  const entriesOf = (button) => (button.dataset.entry !== undefined
    ? [Number(button.dataset.entry)]
    : places.filter((i) => figure.entries[i].method === button.dataset.method));
  figure.section.addEventListener("click", (event) => {
    const button = event.target.closest(".tools button, .legend button");
    if (!button) return;
    if (button.dataset.axis !== undefined) figure.axis = button.dataset.axis;
    else if (button.dataset.scale !== undefined) figure.scale = button.dataset.scale;
    else if (button.dataset.drag !== undefined) figure.drag = button.dataset.drag;
    else if (button.dataset.do === "reset") figure.revision += 1;
    else if (button.dataset.do === "all") figure.hidden.clear();
    else {
      const entries = entriesOf(button);
      const hide = entries.some((i) => !figure.hidden.has(i));
      for (const i of entries) figure.hidden[hide ? "add" : "delete"](i);
    }
    light(figure, null);
    draw(figure);
  });
  const legend = figure.section.querySelector(".legend");
  legend.addEventListener("dblclick", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const kept = entriesOf(button);
    const alone = places.every((i) => kept.includes(i) !== figure.hidden.has(i));
    figure.hidden = new Set(alone ? [] : places.filter((i) => !kept.includes(i)));
    draw(figure);
  });
  for (const button of legend.querySelectorAll("button")) {
    button.addEventListener("pointerenter", () => {
      if (!entriesOf(button).every((i) => figure.hidden.has(i))) light(figure, entriesOf(button));
    });
    button.addEventListener("pointerleave", () => light(figure, null));
  }
}

// --- the rest of the page ------------------------------------------------------------------------

function listenToCounters() {
  const counters = [...document.querySelectorAll(".counter")];
  for (const counter of counters) {
    counter.addEventListener("click", () => {
      const only = counter.getAttribute("aria-pressed") !== "true";
      for (const other of counters) other.setAttribute("aria-pressed", String(only && other === counter));
      for (const claim of document.querySelectorAll(".claim")) {
        claim.hidden = only && claim.dataset.verdict !== counter.dataset.verdict;
      }
    });
  }
}

// A link to a claim opens it, and shows it where a counter has hidden it.
function openTarget() {
  const claim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!claim?.matches(".claim")) return;
  claim.hidden = false;
  claim.open = true;
  claim.scrollIntoView();
}

function followReading() {
  const links = new Map([...document.querySelectorAll('nav li a[href^="#"]')].map((a) => [a.hash.slice(1), a]));
  const sections = [...links.keys()].map((id) => document.getElementById(id));
  const mark = () => {
    const line = 160;
    const current = sections.findLast((section) => section.getBoundingClientRect().top <= line);
    for (const [id, link] of links) {
      if (id === current?.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
}

// Draws all figures, those in sight first; between them the page answers. A later call takes over.
let turn = 0;
async function drawAll() {
  const mine = ++turn;
  root.dataset.ready = "false";
  showTheme();
  const far = (figure) => {
    const box = figure.plot.getBoundingClientRect();
    return Math.max(0, box.top - innerHeight, -box.bottom);
  };
  const order = figures.map((figure) => [far(figure), figure]).sort((a, b) => a[0] - b[0]);
  for (const [, figure] of order) {
    try {
      draw(figure);
    } catch (error) { // the others are drawn all the same
      console.error(`${figure.id} could not be drawn:`, error);
      const still = document.createElement("img");
      still.src = figure.section.querySelector(".files a").getAttribute("href");
      still.alt = figure.section.querySelector("h2").textContent;
      figure.plot.style.height = "";
      figure.plot.replaceChildren(still);
    }
    await new Promise((resolve) => setTimeout(resolve));
    if (mine !== turn) return;
  }
  root.dataset.ready = "true";
}

function listenToPrinting() {
  let folded = [];
  addEventListener("beforeprint", () => {
    printing = true;
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const details of folded) details.open = true;
    showTheme();
    for (const figure of figures) draw(figure); // at once: printing does not wait
  });
  addEventListener("afterprint", () => {
    printing = false;
    for (const details of folded) details.open = false;
    drawAll();
  });
}

function start() {
  showTheme();
  for (const figure of figures) {
    listen(figure);
    figure.plot.style.height = `${geometry(figure, figure.plot.clientWidth).height}px`;
  }
  listenToCounters();
  addEventListener("hashchange", openTarget);
  openTarget();
  listenToPrinting();
  followReading();
  document.getElementById("theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    remember(chosen);
    drawAll();
  });
  wantsDark.addEventListener("change", drawAll);
  let waiting;
  new ResizeObserver(() => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (!printing && figures.some((figure) => figure.width !== figure.plot.clientWidth)) drawAll();
    }, 120);
  }).observe(document.querySelector("main"));
  drawAll();
}

start();
})();
