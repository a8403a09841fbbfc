// Every plot, tree and coloured table of a page gets two buttons that save it, in the colours of the page, as SVG and as PNG.
(() => {
  const properties = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family", "font-size", "font-weight",
    "text-anchor", "dominant-baseline"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const escapeText = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

  // A drawing as a file of its own: the styles of the page are written into its elements.
  function drawing(svg) {
    const copy = svg.cloneNode(true), box = svg.viewBox.baseVal;
    const width = box && box.width ? box.width : svg.clientWidth, height = box && box.height ? box.height : svg.clientHeight;
    const originals = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, index) => {
      const style = getComputedStyle(originals[index]);
      element.setAttribute("style", properties.map((name) => `${name}:${style.getPropertyValue(name).replaceAll('"', "'")}`).join(";"));
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.removeAttribute("style");
    const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    ["width", "height"].forEach((name) => ground.setAttribute(name, "100%"));
    ground.setAttribute("fill", css("--paper"));
    copy.prepend(ground);
    return { text: new XMLSerializer().serializeToString(copy), width, height };
  }

  // A coloured table as a drawing: a rectangle and a text for each cell.
  function tableDrawing(table) {
    const origin = table.getBoundingClientRect(), parts = [];
    table.querySelectorAll("th, td").forEach((cell) => {
      const box = cell.getBoundingClientRect(), style = getComputedStyle(cell);
      const x = box.left - origin.left, y = box.top - origin.top, left = style.textAlign === "left" || style.textAlign === "start";
      const at = left ? x + 6 : style.textAlign === "right" ? x + box.width - 6 : x + box.width / 2;
      const anchor = left ? "start" : style.textAlign === "right" ? "end" : "middle";
      if (cell.tagName === "TD") parts.push(`<rect x="${x}" y="${y}" width="${box.width}" height="${box.height}" fill="${style.backgroundColor}"/>`);
      parts.push(`<text x="${at}" y="${y + box.height / 2 + 5}" text-anchor="${anchor}" fill="${style.color}" font-family="sans-serif"`
        + ` font-size="${parseFloat(style.fontSize)}" font-weight="${style.fontWeight}">${escapeText(cell.textContent)}</text>`);
    });
    const caption = table.caption ? table.caption.textContent : "", width = origin.width, height = origin.height;
    parts.push(`<text x="6" y="16" fill="${css("--soft")}" font-family="sans-serif" font-size="14">${escapeText(caption)}</text>`);
    return {
      text: `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`
        + `<rect width="100%" height="100%" fill="${css("--paper")}"/>${parts.join("")}</svg>`, width, height,
    };
  }

  function save(name, address) {
    const link = document.createElement("a");
    link.download = name;
    link.href = address;
    link.click();
  }
  function saveImage(name, { text, width, height }) {
    const image = new Image(), scale = Math.min(2, 16000 / Math.max(width, height));
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = width * scale;
      canvas.height = height * scale;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      save(`${name}.png`, canvas.toDataURL());
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }

  const pictures = [...document.querySelectorAll("svg.plot, svg.tree, table.heatmap")];
  pictures.forEach((picture, index) => {
    const make = () => (picture.tagName === "TABLE" ? tableDrawing(picture) : drawing(picture));
    const name = `${document.title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}-${index + 1}`, line = document.createElement("p");
    line.className = "save";
    [["SVG", () => { const { text } = make(); save(`${name}.svg`, URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }))); }],
      ["PNG", () => saveImage(name, make())]].forEach(([kind, action]) => {
      const button = document.createElement("button");
      button.className = "plain";
      button.textContent = `Save as ${kind}`;
      button.setAttribute("aria-label", `Save picture ${index + 1} as ${kind}`);
      button.addEventListener("click", action);
      line.append(button, " ");
    });
    (picture.closest(".wide") || picture).after(line);
  });
})();
