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
  data.maps.forEach((map, number) => map.button.setAttribute("aria-pressed", number === shown));
  render();
}

function render() {
  const map = data.maps[shown], { queries, keys } = names(map);
  document.getElementById("which").textContent = `${map.layer}, head ${map.head}`;
  words(map, queries, keys);
  table(map, queries, keys);
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
  const rows = data.edges.filter((edge) => edge.layer === map.layer && edge.head === map.head)
    .sort((a, b) => b.weight - a.weight);
  document.getElementById("none").hidden = rows.length > 0;
  document.getElementById("edges").innerHTML = rows.slice(0, 40).map((edge) =>
    `<tr><td>${escapeText(queries[edge.query])} → ${escapeText(keys[edge.key])}</td><td>${edge.weight.toFixed(2)}</td>`
    + `<td>${signed(edge.effect)}</td><td>${edge.target_effect === null ? "" : signed(edge.target_effect)}</td></tr>`).join("");
}

const signed = (value) => (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(3);
const escapeText = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

document.getElementById("lines").addEventListener("click", (event) => {
  const { side, at } = event.target.dataset;
  focus = side && !(focus && focus.side === side && focus.at === +at) ? { side, at: +at } : null;
  render();
});
document.addEventListener("keydown", (event) => {
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  if (steps[event.key]) { show(shown + steps[event.key]); data.maps[shown].button.focus({ preventScroll: true }); event.preventDefault(); }
});
document.getElementById("save").addEventListener("click", () => {
  const canvas = document.createElement("canvas");
  paint(canvas, data.maps[shown], 12);
  const link = document.createElement("a");
  link.download = `attention-${data.maps[shown].layer}-${data.maps[shown].head}.png`;
  link.href = canvas.toDataURL();
  link.click();
});
const paintAll = () => { data.maps.forEach((map) => paint(map.canvas, map, Math.max(1, Math.floor(84 / Math.max(...Object.values(names(map)).map((list) => list.length)))))); render(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
show(data.start);
paintAll();
