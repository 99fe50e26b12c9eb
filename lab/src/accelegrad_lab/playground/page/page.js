// The page: controls, the map with its points, the two charts. What it shows comes from Rules.run.
"use strict";

const EXTENT = 3; // the map shows the square from -3 to 3
const STEPS = 200, MILLISECONDS = 90; // of a run, and between two steps
const PATH = 25; // steps whose path is drawn
const MEANS = {
  accelegrad: ["where the gradient is taken", "after a short step", "after a long step, held in the ball"],
  automatic: ["where the gradient is taken", "after a short step", "after a long step"],
  adagrad: ["where the gradient is taken", "after the step", "the same point as y"],
  bundle: ["the trial point", "the best point so far", "AcceleGrad's z, where its steps take turns"],
};
const $ = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(resolver(name)).color;
let start = [...Rules.FUNCTIONS.smooth.start], frames = [], shown = 0, timer = null, background = null;

function resolver(name) { // a light-dark() variable has its colour on an element alone
  const probe = resolver.probe ??= document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  probe.style.color = `var(--${name})`;
  return probe;
}
function options() {
  const method = $("method").value;
  return {
    fun: $("fun").value, method, x0: start, diameter: diameter(), gradientBound: Number($("bound").value),
    noise: Number($("noise").value), seed: Math.max(0, Math.floor(Number($("seed").value) || 0)), steps: STEPS,
  };
}
const diameter = () => 10 ** Number($("diameter").value);
const short = (number) => {
  const size = Math.abs(number);
  return size !== 0 && (size < 1e-3 || size >= 1e4) ? number.toExponential(2) : number.toFixed(4);
};

// -- controls -------------------------------------------------------------------------------------
function fill(id, entries) {
  $(id).append(...Object.entries(entries).map(([value, { label }]) => new Option(label, value)));
}
function chosenFunction() {
  const fun = Rules.FUNCTIONS[$("fun").value];
  start = [...fun.start];
  $("diameter").value = Math.log10(fun.diameter);
  $("noise").value = fun.noise;
  if (fun.noise > 0 && Rules.METHODS[$("method").value].exactOnly) $("method").value = "automatic";
  background = null;
  rerun();
}
function describe() {
  const { method, noise } = options(), kind = Rules.METHODS[method];
  $("diameter-shown").value = kind.needsD ? diameter().toPrecision(3) : "found";
  $("diameter").disabled = !kind.needsD;
  $("bound").disabled = method !== "accelegrad";
  $("bound-shown").value = $("bound").value;
  $("noise-shown").value = $("noise").value;
  $("seed").disabled = !(noise > 0);
  MEANS[method].forEach((text, i) => { $(`${"xyz"[i]}-means`).textContent = text; });
}
function rerun() {
  describe();
  $("note").textContent = "";
  const given = options(), minimum = Rules.FUNCTIONS[given.fun].minimum;
  try {
    frames = Rules.run(given);
  } catch (error) {
    frames = [];
    $("note").textContent = error.message;
  }
  if (given.noise > 0 && frames.length) $("note").textContent = "With noise no value is exact: nothing is proved, and the average is returned.";
  const { needsD } = Rules.METHODS[given.method];
  if (!needsD && !(given.noise > 0)) $("note").textContent = "The proof holds within the dashed circle, which grows with the distance travelled.";
  if (needsD && frames.some((frame) => frame.lower !== null && frame.lower > minimum + 1e-9)) {
    $("note").textContent = "The lower bound passes the minimum: no minimiser lies within the dashed circle. A larger D is needed.";
  }
  $("time").max = Math.max(0, frames.length - 1);
  show(0);
  play();
}

// -- the player -----------------------------------------------------------------------------------
function play() {
  clearInterval(timer);
  $("play").textContent = "Pause";
  timer = setInterval(() => (shown + 1 < frames.length ? show(shown + 1) : pause()), MILLISECONDS);
}
function pause() {
  clearInterval(timer);
  timer = null;
  $("play").textContent = "Play";
}
function show(step) {
  shown = Math.max(0, Math.min(step, frames.length - 1));
  $("time").value = shown;
  const frame = frames[shown];
  $("clock").textContent = frame ? `step ${shown + 1} of ${frames.length}` : "";
  $("value").textContent = frame ? short(frame.value) : "";
  $("lower").textContent = frame && frame.lower !== null ? short(frame.lower) : "nothing";
  $("certified").textContent = frame && frame.lower !== null ? short(frame.value - frame.lower) : "none";
  $("calls").textContent = frame ? frame.calls : "";
  drawMap();
  drawBand();
  drawGap();
}

// -- drawing --------------------------------------------------------------------------------------
function canvas(id) {
  const element = $(id), ratio = window.devicePixelRatio || 1;
  const width = element.clientWidth, height = element.clientHeight;
  if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
  }
  const pen = element.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}
const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
function contours(size) { // bands of equal height, in powers: the steep parts do not swallow the valley
  const fun = Rules.FUNCTIONS[$("fun").value];
  const picture = document.createElement("canvas");
  picture.width = picture.height = size;
  const pen = picture.getContext("2d"), pixels = pen.createImageData(size, size);
  const low = channels(colour("low")), high = channels(colour("high"));
  const at = (i) => (2 * EXTENT * (i + 0.5)) / size - EXTENT;
  const heights = new Float64Array(size * size);
  let highest = 0;
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      const height = Math.sqrt(fun.at([at(column), -at(row)]).value - fun.minimum + 1e-12);
      heights[row * size + column] = height;
      highest = Math.max(highest, height);
    }
  }
  heights.forEach((height, i) => {
    const share = Math.floor((14 * height) / highest) / 14;
    for (let k = 0; k < 3; k++) pixels.data[4 * i + k] = low[k] + share * (high[k] - low[k]);
    pixels.data[4 * i + 3] = 255;
  });
  pen.putImageData(pixels, 0, 0);
  return picture;
}
function drawMap() {
  const { pen, width } = canvas("map");
  const place = (p) => [((p[0] + EXTENT) / (2 * EXTENT)) * width, ((EXTENT - p[1]) / (2 * EXTENT)) * width];
  background ??= contours(360);
  pen.imageSmoothingEnabled = true;
  pen.drawImage(background, 0, 0, width, width);
  const frame = frames[shown];
  if (!frame) return;
  if (frame.lower !== null) {
    pen.setLineDash([6, 5]);
    circle(pen, place(start), (frame.radius / (2 * EXTENT)) * width, colour("soft"));
    pen.setLineDash([]);
  }
  for (const name of ["z", "y", "x"]) path(pen, name, place);
  for (const name of ["z", "y", "x"]) dot(pen, place(frame[name]), 5, colour(name));
  circle(pen, place(frame.returned), 9, colour("ink"), 2);
  cross(pen, place(start), colour("ink"));
}
function path(pen, name, place) {
  const first = Math.max(0, shown - PATH), stroke = colour(name);
  pen.strokeStyle = stroke;
  pen.lineWidth = 1.5;
  for (let i = first; i < shown; i++) {
    pen.globalAlpha = 0.15 + (0.7 * (i - first + 1)) / (shown - first);
    pen.beginPath();
    pen.moveTo(...place(frames[i][name]));
    pen.lineTo(...place(frames[i + 1][name]));
    pen.stroke();
  }
  pen.globalAlpha = 1;
}
function dot(pen, [x, y], radius, fill) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
  pen.strokeStyle = colour("card");
  pen.lineWidth = 1.5;
  pen.stroke();
}
function circle(pen, [x, y], radius, stroke, width = 1.5) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.strokeStyle = stroke;
  pen.lineWidth = width;
  pen.stroke();
}
function cross(pen, [x, y], stroke) {
  pen.beginPath();
  pen.moveTo(x - 5, y - 5);
  pen.lineTo(x + 5, y + 5);
  pen.moveTo(x + 5, y - 5);
  pen.lineTo(x - 5, y + 5);
  pen.strokeStyle = stroke;
  pen.lineWidth = 2;
  pen.stroke();
}
function axes(id, low, high, ticks, text) {
  const { pen, width, height } = canvas(id), left = 52, bottom = 20, top = 6;
  const across = (i) => left + ((width - left - 8) * i) / Math.max(1, frames.length - 1);
  const up = (v) => top + (height - top - bottom) * (1 - (v - low) / (high - low));
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = colour("soft");
  pen.strokeStyle = colour("line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of ticks) {
    pen.beginPath();
    pen.moveTo(left, up(tick));
    pen.lineTo(width, up(tick));
    pen.stroke();
    pen.fillText(text(tick), left - 6, up(tick));
  }
  pen.textBaseline = "alphabetic";
  pen.fillText(`step ${frames.length}`, width - 4, height - 4);
  pen.textAlign = "left";
  pen.fillText("step 1", left, height - 4);
  return { pen, across, up };
}
function line({ pen, across, up }, numbers, stroke, width = 2) {
  pen.beginPath();
  numbers.forEach((number, i) => (i === 0 ? pen.moveTo(across(i), up(number)) : pen.lineTo(across(i), up(number))));
  pen.strokeStyle = stroke;
  pen.lineWidth = width;
  pen.stroke();
}
function drawBand() {
  if (!frames.length) return void canvas("band");
  const minimum = Rules.FUNCTIONS[$("fun").value].minimum, seen = frames.slice(0, shown + 1);
  // The scale follows the value: a band that is still far away is cut off.
  const last = seen[seen.length - 1];
  const span = Math.max(last.value - minimum, last.lower === null ? 0 : Math.min(minimum - last.lower, 3), 0.02) * 2.5;
  const low = minimum - span, high = minimum + span;
  const limited = (v) => Math.min(Math.max(v, low), high);
  const chart = axes("band", low, high, [minimum - span / 2, minimum, minimum + span / 2], (v) => short(v));
  const values = seen.map((frame) => limited(frame.value));
  if (last.lower !== null) {
    const { pen, across, up } = chart, lowers = seen.map((frame) => limited(frame.lower));
    pen.beginPath();
    values.forEach((v, i) => pen.lineTo(across(i), up(v)));
    lowers.map((v, i) => [i, v]).reverse().forEach(([i, v]) => pen.lineTo(across(i), up(v)));
    pen.fillStyle = colour("band");
    pen.fill();
    line(chart, lowers, colour("soft"), 1.5);
  }
  line(chart, values, colour("y"));
}
function drawGap() {
  if (!frames.length) return void canvas("gap");
  const minimum = Rules.FUNCTIONS[$("fun").value].minimum, floor = 1e-10;
  const log = (v) => Math.log10(Math.max(v, floor));
  const seen = frames.slice(0, shown + 1), all = frames.map((frame) => log(frame.value - minimum));
  const high = Math.ceil(Math.max(...all, 0.5)), low = Math.floor(Math.min(...all, -1));
  const ticks = [];
  for (let tick = high; tick >= low; tick -= Math.ceil((high - low) / 5)) ticks.push(tick);
  const chart = axes("gap", low, high, ticks, (v) => `1e${v}`);
  const limited = (v) => Math.min(Math.max(log(v), low), high);
  if (seen[0].lower !== null) line(chart, seen.map((frame) => limited(frame.value - frame.lower)), colour("soft"), 1.5);
  line(chart, seen.map((frame) => limited(frame.value - minimum)), colour("y"));
}

// -- what users do --------------------------------------------------------------------------------
function clicked(event) {
  const box = $("map").getBoundingClientRect();
  const across = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
  start = [EXTENT * (2 * across - 1), EXTENT * (1 - 2 * down)];
  rerun();
}
function stepped(by) {
  pause();
  show(shown + by);
}
fill("fun", Rules.FUNCTIONS);
fill("method", Rules.METHODS);
$("fun").addEventListener("change", chosenFunction);
for (const id of ["method", "diameter", "bound", "noise", "seed"]) $(id).addEventListener("input", rerun);
$("controls").addEventListener("submit", (event) => event.preventDefault());
$("map").addEventListener("click", clicked);
$("map").addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) { event.preventDefault(); stepped(by); }
});
$("back").addEventListener("click", () => stepped(-1));
$("forward").addEventListener("click", () => stepped(1));
$("time").addEventListener("input", () => { pause(); show(Number($("time").value)); });
$("play").addEventListener("click", () => {
  if (timer) return pause();
  if (shown >= frames.length - 1) show(0);
  return play();
});
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  background = null;
  show(shown);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { background = null; show(shown); });
window.addEventListener("resize", () => show(shown));
// playground.html?fun=kinked&method=bundle opens with these.
for (const [id, value] of new URLSearchParams(location.search)) {
  if (["fun", "method"].includes(id) && $(id).querySelector(`option[value="${CSS.escape(value)}"]`)) $(id).value = value;
}
chosenFunction();
