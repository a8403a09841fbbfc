// The page of attention maps: small maps of all heads, and one of them large, with lines between words and the effects of its edges.
const data = JSON.parse(document.getElementById("data").textContent);
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--mark").trim();
const names = (map) => ({
  queries: map.reads === "source" ? data.source : data.tokens,
  keys: map.reads === "source" || map.reads === "cross" ? data.source : data.tokens,
});
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
data.maps.forEach((map) => { map.values = bytes(map.weights); });

function paint(canvas, map, cell) {
  const { queries, keys } = names(map);
  const rows = queries.length, columns = keys.length;
  canvas.width = columns * cell; canvas.height = rows * cell;
  const draw = canvas.getContext("2d");
  draw.fillStyle = ink();
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) {
      const weight = map.values[row * columns + column] / 255;
      if (weight < 0.004) continue;
      draw.globalAlpha = weight;
      draw.fillRect(column * cell, row * cell, cell, cell);
    }
}

const grid = document.getElementById("maps");
let layer = null, line = null;
data.maps.forEach((map, index) => {
  if (map.layer !== layer) {
    layer = map.layer;
    const title = document.createElement("div");
    title.className = "layer";
    title.textContent = layer;
    line = document.createElement("div");
    line.className = "heads";
    grid.append(title, line);
  }
  const button = document.createElement("button");
  button.className = "map";
  button.setAttribute("aria-label", `${map.layer}, head ${map.head}`);
  const canvas = document.createElement("canvas");
  const label = document.createElement("span");
  label.textContent = map.head;
  button.append(canvas, label);
  button.addEventListener("click", () => show(index));
  line.append(button);
  map.button = button;
  map.canvas = canvas;
});

let shown = 0, focus = null;
function show(index) {
  shown = Math.max(0, Math.min(data.maps.length - 1, index));
  focus = null;
  place = null;
  data.maps.forEach((map, number) => map.button.setAttribute("aria-pressed", number === shown));
  render();
}

let place = null;
function render() {
  const map = data.maps[shown], { queries, keys } = names(map);
  document.getElementById("which").textContent = `${map.layer}, head ${map.head}`;
  words(map, queries, keys);
  table(map, queries, keys);
  large(map, queries, keys);
  if (document.getElementById("numbers").open) numbers();
}

// The map with its words at the left and above; `cell` pixels for a weight.
function large(map, queries, keys) {
  const canvas = document.getElementById("large"), style = getComputedStyle(document.documentElement);
  const cell = Math.max(4, Math.min(26, Math.floor(420 / Math.max(queries.length, keys.length))));
  const named = cell >= 11, margin = named ? 92 : 4, right = named ? 36 : 2, ratio = window.devicePixelRatio || 1;
  canvas.width = (margin + keys.length * cell + right) * ratio; // the last word leans to the right
  canvas.height = (margin + queries.length * cell + 2) * ratio;
  canvas.style.width = `${canvas.width / ratio}px`;
  const draw = canvas.getContext("2d");
  draw.scale(ratio, ratio);
  draw.font = `${Math.min(13, cell)}px system-ui, sans-serif`;
  draw.fillStyle = style.getPropertyValue("--ink");
  const short = (text) => (text.length > 11 ? `${text.slice(0, 10)}…` : text);
  if (named) {
    draw.textAlign = "right";
    queries.forEach((text, row) => draw.fillText(short(text), margin - 5, margin + row * cell + cell / 2 + 4));
    draw.textAlign = "left";
    keys.forEach((text, column) => {
      draw.save();
      draw.translate(margin + column * cell + cell / 2 + 4, margin - 5);
      draw.rotate(-Math.PI / 2.6);
      draw.fillText(short(text), 0, 0);
      draw.restore();
    });
  }
  draw.fillStyle = ink();
  map.values.forEach((value, index) => {
    if (value < 1) return;
    draw.globalAlpha = value / 255;
    draw.fillRect(margin + (index % keys.length) * cell, margin + Math.floor(index / keys.length) * cell, cell, cell);
  });
  draw.globalAlpha = 1;
  draw.strokeStyle = style.getPropertyValue("--soft");
  draw.strokeRect(margin, margin, keys.length * cell, queries.length * cell);
  if (place) {
    draw.strokeStyle = style.getPropertyValue("--ink");
    draw.lineWidth = 2;
    draw.strokeRect(margin + place.column * cell, margin + place.row * cell, cell, cell);
  }
  Object.assign(canvas, { cell, margin });
}
function read(row, column) {
  const map = data.maps[shown], { queries, keys } = names(map);
  if (row < 0 || column < 0 || row >= queries.length || column >= keys.length) return;
  place = { row, column };
  const edge = data.edges.find((one) => one[0] === shown && one[1] === row && one[2] === column);
  const weight = (map.values[row * keys.length + column] / 255).toFixed(3);
  document.getElementById("cell").textContent = `${queries[row]} → ${keys[column]}: weight ${weight}`
    + (edge ? `, effect of removing it ${signed(edge[4])}` : ", effect not measured");
  large(map, queries, keys);
}
function numbers() {
  const map = data.maps[shown], { queries, keys } = names(map);
  const head = `<tr><th></th>${keys.map((text) => `<th>${escapeText(text)}</th>`).join("")}</tr>`;
  const rows = queries.map((text, row) => `<tr><th>${escapeText(text)}</th>${keys.map((_, column) => {
    const value = map.values[row * keys.length + column] / 255;
    return `<td>${value < 0.005 ? "" : value.toFixed(2)}</td>`;
  }).join("")}</tr>`).join("");
  document.querySelector("#numbers div").innerHTML = `<table>${head}${rows}</table>`;
}

function words(map, queries, keys) {
  const step = 24, height = Math.max(queries.length, keys.length) * step + 12, svg = document.getElementById("lines");
  const left = 170, right = 430;
  svg.setAttribute("viewBox", `0 0 600 ${height}`);
  svg.style.maxHeight = `${height}px`;
  const parts = [];
  queries.forEach((_, row) => keys.forEach((_, column) => {
    const weight = map.values[row * keys.length + column] / 255;
    if (weight < 0.05 || (focus && !(focus.side === "q" ? focus.at === row : focus.at === column))) return;
    parts.push(`<line x1="${left + 6}" y1="${row * step + 14}" x2="${right - 6}" y2="${column * step + 14}" stroke="var(--mark)"`
      + ` stroke-opacity="${weight.toFixed(2)}" stroke-width="${(1 + 3 * weight).toFixed(1)}"/>`);
  }));
  const word = (text, x, row, anchor, side) => `<text x="${x}" y="${row * step + 18}" text-anchor="${anchor}" data-side="${side}" data-at="${row}"`
    + ` class="${focus && focus.side === side && focus.at === row ? "on" : ""}">${escapeText(text)}</text>`;
  queries.forEach((text, row) => parts.push(word(text, left, row, "end", "q")));
  keys.forEach((text, row) => parts.push(word(text, right, row, "start", "k")));
  svg.innerHTML = parts.join("");
}

function table(map, queries, keys) {
  const rows = data.edges.filter((edge) => edge[0] === shown).sort((a, b) => b[3] - a[3]);
  document.getElementById("none").hidden = rows.length > 0;
  document.getElementById("edges").innerHTML = rows.slice(0, 40).map(([, query, key, weight, effect, own, drawn]) =>
    `<tr><td>${drawn ? "○ " : ""}${escapeText(queries[query])} → ${escapeText(keys[key])}</td><td>${weight.toFixed(2)}</td>`
    + `<td>${signed(effect)}</td>${data.own ? `<td>${own === null ? "" : signed(own)}</td>` : ""}</tr>`).join("");
}

const signed = (value) => (value >= 0 ? "+" : "−") + (Math.abs(value) >= 0.001 || value === 0 ? Math.abs(value).toFixed(3) : Math.abs(value).toExponential(0));
const escapeText = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

document.getElementById("lines").addEventListener("click", (event) => {
  const { side, at } = event.target.dataset;
  focus = side && !(focus && focus.side === side && focus.at === +at) ? { side, at: +at } : null;
  render();
});
const picture = document.getElementById("large");
const under = (event) => {
  const box = picture.getBoundingClientRect(), scale = parseFloat(picture.style.width) / box.width;
  const at = (value) => Math.floor((value * scale - picture.margin) / picture.cell);
  return [at(event.clientY - box.top), at(event.clientX - box.left)];
};
picture.addEventListener("mousemove", (event) => read(...under(event)));
picture.addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  const from = place || { row: -step[0], column: -step[1] };
  read(Math.max(0, from.row + step[0]), Math.max(0, from.column + step[1]));
  event.preventDefault();
  event.stopPropagation();
});
document.getElementById("numbers").addEventListener("toggle", numbers);
document.addEventListener("keydown", (event) => {
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  if (steps[event.key] && !event.target.closest("select, details")) { show(shown + steps[event.key]); data.maps[shown].button.focus({ preventScroll: true }); event.preventDefault(); }
});
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.download = `attention-${data.maps[shown].layer}-${data.maps[shown].head}.png`;
  link.href = picture.toDataURL();
  link.click();
});
document.getElementById("save-lines").addEventListener("click", () => {
  const copy = document.getElementById("lines").cloneNode(true), style = getComputedStyle(document.documentElement);
  copy.querySelectorAll("text").forEach((text) => text.setAttribute("style", `font: 15px sans-serif; fill: ${style.getPropertyValue("--ink")}`));
  const link = document.createElement("a");
  link.download = `attention-${data.maps[shown].layer}-${data.maps[shown].head}.svg`;
  link.href = URL.createObjectURL(new Blob([copy.outerHTML.replaceAll("var(--mark)", ink())], { type: "image/svg+xml" }));
  link.click();
});
const paintAll = () => { data.maps.forEach((map) => paint(map.canvas, map, Math.max(1, Math.floor(74 / Math.max(...Object.values(names(map)).map((list) => list.length)))))); render(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
show(data.start);
paintAll();
