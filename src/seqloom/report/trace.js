// The page of a trace: the numbers of every step at one position, each sum written out on request, and every sum computed again here from the
// numbers that the page shows.
const data = JSON.parse(document.getElementById("data").textContent);
const DIGITS = 5, ROUNDING = 5e-5, FLOAT = 2e-6, FIRST = 16, MOST_TERMS = 400;
const erf = (x) => {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a > 2.5) { // continued fraction of erfc
    let f = 0;
    for (let k = 60; k > 0; k--) f = k / 2 / (a + f);
    return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + f));
  }
  let sum = a, term = a;
  for (let k = 1; k < 80; k++) { term *= -a * a / k; sum += term / (2 * k + 1); }
  return Math.sign(x) * 2 / Math.sqrt(Math.PI) * sum;
};
const FUNCTIONS = {
  exp: Math.exp, tanh: Math.tanh, sqrt: Math.sqrt, relu: (a) => Math.max(a, 0),
  sigmoid: (a) => 1 / (1 + Math.exp(-a)), normal_cdf: (a) => 0.5 * (1 + erf(a / Math.SQRT2)),
};
const names = Object.keys(FUNCTIONS);
const compile = (variables, expression) => {
  const made = new Function(...names, ...variables, `return ${expression};`);
  return (...values) => made(...names.map((name) => FUNCTIONS[name]), ...values);
};
const arrays = data.arrays.map(({ shape, values }) => {
  const bytes = Uint8Array.from(atob(values), (letter) => letter.charCodeAt(0));
  return { shape, values: Float64Array.from(new Float32Array(bytes.buffer), (x) => Number(x.toPrecision(DIGITS))) };
});
const show = (x) => (x === -Infinity ? "−∞" : String(Number(x.toPrecision(DIGITS))).replace("-", "−").replace("e−", "e−"));
const escapeText = (text) => String(text).replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

// An operand's place in its array for given values of the letters.
function strides(axes, shape) {
  const found = {};
  let size = 1;
  for (let axis = axes.length - 1; axis >= 0; axis--) { found[axes[axis]] = size; size *= shape[axis]; }
  return found;
}
function prepare(step) {
  step.array = arrays[step.values];
  step.steps = strides(step.axes, step.array.shape);
  step.sizes = {};
  [...step.axes].forEach((letter, axis) => { step.sizes[letter] = step.array.shape[axis]; });
  step.operands = Object.entries(step.operands).map(([variable, { name, axes, array }]) => {
    const one = { variable, name, axes, array: arrays[array], steps: strides(axes, arrays[array].shape) };
    [...axes].forEach((letter, axis) => {
      const length = one.array.shape[axis];
      step.sizes[letter] = Math.min(step.sizes[letter] ?? length, length);
    });
    return one;
  });
  if (!step.finish) return;
  const used = (text) => new Set(text.match(/[a-z_]+/gi) || []);
  const inTerm = used(step.term), inFinish = used(step.finish);
  step.inner = step.operands.filter((one) => inTerm.has(one.variable));
  step.outer = step.operands.filter((one) => inFinish.has(one.variable) && ![...one.axes].some((letter) => step.over.includes(letter)));
  step.count = [...step.over].reduce((n, letter) => n * step.sizes[letter], 1);
  if (step.over) step.termOf = compile(step.inner.map((one) => one.variable), step.term);
  step.finishOf = compile(["total", "n", ...step.outer.map((one) => one.variable)], step.finish);
  step.product = /^\w+( \* \w+)*$/.test(step.term);
}
const at = (one, place) => {
  let index = 0;
  for (const letter of one.axes) index += one.steps[letter] * place[letter];
  return one.array.values[index];
};
function* places(letters, sizes, place = {}) {
  if (!letters.length) { yield place; return; }
  for (let index = 0; index < sizes[letters[0]]; index++) yield* places(letters.slice(1), sizes, { ...place, [letters[0]]: index });
}

// A number computed again from the displayed operands: its value, and how far rounding to the displayed digits may move it.
function recompute(step, place, rows) {
  let total = 0, squares = 0, absolute = 0;
  if (step.over) {
    const inner = step.inner, values = new Array(inner.length);
    const walk = (depth) => {
      if (depth < step.over.length) {
        const letter = step.over[depth];
        for (let index = 0; index < step.sizes[letter]; index++) { place[letter] = index; walk(depth + 1); }
        return;
      }
      for (let k = 0; k < inner.length; k++) values[k] = at(inner[k], place);
      const term = step.termOf(...values);
      total += term; absolute += Math.abs(term);
      if (step.product) squares += inner.length * (term * ROUNDING) ** 2;
      else for (let k = 0; k < inner.length; k++) {
        if (!Number.isFinite(values[k])) continue;
        const changed = [...values];
        changed[k] *= 1 + ROUNDING;
        squares += (step.termOf(...changed) - term) ** 2;
      }
      if (rows) rows.push({ place: { ...place }, values: [...values], term });
    };
    walk(0);
  }
  const outer = step.outer.map((one) => at(one, place));
  const result = step.finishOf(total, step.count, ...outer);
  const moved = 6 * Math.sqrt(squares / 3) + FLOAT * absolute;
  const largest = Math.max(0, ...outer.filter(Number.isFinite).map(Math.abs));
  let bound = Math.abs(result) * ROUNDING * 2 + FLOAT / 10 * largest + step.noise + 1e-9 + Math.abs(step.finishOf(total + moved, step.count, ...outer) - result);
  outer.forEach((value, k) => {
    if (!Number.isFinite(value)) return;
    const changed = [...outer];
    changed[k] *= 1 + ROUNDING;
    bound += 1.5 * Math.abs(step.finishOf(total, step.count, ...changed) - result);
  });
  return { result, bound, total, outer };
}
function agrees(step, place) {
  const shown = at(step, place);
  if (shown === -Infinity) return null;
  const { result, bound } = recompute(step, { ...place });
  return Math.abs(result - shown) <= bound;
}
const step_list = data.steps;
step_list.forEach(prepare);

const labels = (step, letter) => step.labels[letter]
  || (letter === "t" ? (step.side === "source" ? data.source : data.tokens)
    : (letter === "s" || letter === "u") && step.operands.length && step.sizes[letter] === (data.keys[step.name] || data.tokens).length ? data.keys[step.name] || data.tokens : null);
const label = (step, letter, index) => { const known = labels(step, letter); return known && known[index] !== undefined ? known[index] : String(index); };

let position = data.tokens.length - 1, sourcePosition = Math.max(0, data.source.length - 1);
const here = (step) => (step.side === "source" ? sourcePosition : position);
const cell = (step, index, place) => {
  const value = at(step, place);
  const key = JSON.stringify(place);
  const can = step.finish && [...step.axes].every((letter) => place[letter] < step.sizes[letter]) && value !== -Infinity;
  const bad = step.wrong && step.wrong.has(key);
  return `<td${bad ? " class=bad" : ""}>${can ? `<button class=n data-step=${index} data-place='${key}'>${bad ? "✗ " : ""}${show(value)}</button>` : show(value)}</td>`;
};
function card(step, index) {
  const letters = [...step.axes].filter((letter) => letter !== "t");
  const place = step.axes.includes("t") ? { t: Math.min(here(step), step.array.shape[step.axes.indexOf("t")] - 1) } : {};
  const columns = letters.at(-1), rowLetters = letters.slice(0, -1);
  const shape = Object.fromEntries([...step.axes].map((letter, axis) => [letter, step.array.shape[axis]]));
  const width = columns ? shape[columns] : 1;
  const shown = step.all ? width : Math.min(width, FIRST);
  const head = columns && (rowLetters.length || labels(step, columns))
    ? `<tr><th></th>${Array.from({ length: shown }, (_, column) => `<th>${escapeText(label(step, columns, column))}</th>`).join("")}</tr>` : "";
  const rows = [...places(rowLetters, shape, place)].slice(0, 64).map((row) => {
    const name = rowLetters.map((letter) => `${letter === "h" ? "head " : letter === "t" ? "" : `${letter} `}${label(step, letter, row[letter])}`).join(", ");
    const cells = columns ? Array.from({ length: shown }, (_, column) => cell(step, index, { ...row, [columns]: column })).join("") : cell(step, index, row);
    return `<tr><th>${escapeText(name)}</th>${cells}</tr>`;
  }).join("");
  const more = width > FIRST ? `<button class=plain data-more=${index}>${step.all ? `the first ${FIRST}` : `all ${width}`}</button>` : "";
  const where = step.axes.includes("t") ? ` at “${escapeText(label(step, "t", place.t))}”` : "";
  return `<section class=step id=step-${index}><h3><code>${escapeText(step.name)}</code> <span class=soft>${escapeText(step.part)}${where}</span></h3>
<p>${step.formula ? `<span class=formula>${escapeText(step.formula)}</span> ` : "<span class=soft>given: no equation for it here</span> "}${verdict(step)} ${more}</p>
<div class=wide><table class=numbers>${head}${rows}</table></div><div class=terms id=terms-${index}></div></section>`;
}
const verdict = (step) => (step.checked === undefined ? "" : step.wrong.size
  ? `<strong class=bad>✗ ${step.wrong.size} of ${step.checked} differ</strong>`
  : `<span class=good>✓ ${step.checked.toLocaleString("en")} computed again</span>`);

function terms(step, place) {
  const rows = [];
  const { result, total, outer } = recompute(step, { ...place }, rows);
  const shown = at(step, place);
  const fill = step.finish.replace(/[a-z_]+/gi, (name) => {
    if (name in FUNCTIONS) return name;
    const index = step.outer.findIndex((one) => one.variable === name);
    return name === "total" ? show(total) : name === "n" ? step.count : index < 0 ? name : show(outer[index]);
  }).replaceAll(" * ", " × ").replaceAll("normal_cdf", "Φ").replaceAll("sigmoid", "σ").replaceAll("- ", "− ");
  const parts = [`<p><strong>${show(shown)}</strong> = ${escapeText(fill)} = ${show(result)} <span class=soft>${step.outer.map((one) => `${one.variable}: ${escapeText(one.name)}`).join("; ")}</span></p>`];
  if (step.over) {
    const letters = [...step.over];
    const head = [...step.inner.map((one) => `${one.variable} <span class=soft>${escapeText(one.name)}</span>`), escapeText(step.term.replaceAll(" * ", " × "))];
    parts.push(`<div class="wide tall"><table class=numbers><caption>total = Σ of ${rows.length} terms = ${show(total)}${rows.length > MOST_TERMS ? `; the first ${MOST_TERMS} are listed` : ""}</caption>
<thead><tr><th>${letters.join(", ")}</th>${head.map((text) => `<th>${text}</th>`).join("")}</tr></thead><tbody>${rows.slice(0, MOST_TERMS).map((row) =>
      `<tr><th>${escapeText(letters.map((letter) => label(step, letter, row.place[letter])).join(", "))}</th>${[...row.values, row.term].map((value) => `<td>${show(value)}</td>`).join("")}</tr>`).join("")}</tbody></table></div>`);
  }
  return parts.join("");
}

function choose(list, id, chosen) {
  document.getElementById(id).innerHTML = list.map((text, index) =>
    `<button class=token data-${id}=${index} aria-pressed=${index === chosen}>${escapeText(text)}</button>`).join("");
}
function render() {
  choose(data.tokens, "tokens", position);
  if (data.source.length) choose(data.source, "source", sourcePosition);
  const chosen = document.getElementById("part").value;
  document.getElementById("steps").innerHTML = step_list.map((step, index) => (chosen === "" || step.group === chosen ? card(step, index) : "")).join("");
}
function check() {
  let count = 0, operands = 0;
  const wrong = [];
  step_list.forEach((step) => {
    if (!step.finish) return;
    step.checked = 0; step.wrong = new Set();
    for (const place of places([...step.axes], step.sizes)) {
      const right = agrees(step, place);
      if (right === null) continue;
      step.checked++; count++; operands += step.count * step.inner.length + step.outer.length;
      if (!right) { step.wrong.add(JSON.stringify(place)); wrong.push(step.name); }
    }
  });
  const text = `${count.toLocaleString("en")} numbers computed again on this page from ${operands.toLocaleString("en")} operands, as they are shown with ${DIGITS} digits: `;
  const box = document.getElementById("verdict");
  box.className = wrong.length ? "note bad" : "note good";
  box.textContent = text + (wrong.length ? `✗ ${wrong.length} differ, in ${[...new Set(wrong)].slice(0, 5).join(", ")}` : "✓ all agree.");
  render();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { step, place, more, tokens, source } = button.dataset;
  if (step !== undefined) document.getElementById(`terms-${step}`).innerHTML = terms(step_list[step], JSON.parse(place));
  else if (more !== undefined) { step_list[more].all = !step_list[more].all; render(); document.querySelector(`[data-more="${more}"]`).focus(); }
  else if (tokens !== undefined) { position = +tokens; render(); document.querySelector(`[data-tokens="${tokens}"]`).focus(); }
  else if (source !== undefined) { sourcePosition = +source; render(); document.querySelector(`[data-source="${source}"]`).focus(); }
});
const groups = [...new Set(step_list.map((step) => step.group))];
document.getElementById("part").innerHTML = groups.map((group) => `<option>${escapeText(group)}</option>`).join("") + '<option value="">everything</option>';
const layer = groups.find((group) => /(blocks|layers)\.\d/.test(group));
document.getElementById("part").value = layer === undefined ? "" : layer;
document.getElementById("part").addEventListener("change", render);
render();
setTimeout(check, 30);
