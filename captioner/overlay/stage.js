// The picture of a viewer, with one map on it, the outline of a hard model's cell, and the cell under the pointer.
import { paint } from "./painting.js";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

// `picture` is an <img>, a <canvas>, an ImageBitmap or an address. `label` is its text for screen readers.
function createStage(picture, label) {
  const isElement = picture instanceof HTMLImageElement;
  const image = isElement ? picture : element("img", { alt: label });
  if (typeof picture === "string") image.src = picture;
  if (!isElement && typeof picture !== "string") {
    const copy = element("canvas", { width: picture.width, height: picture.height });
    copy.getContext("2d").drawImage(picture, 0, 0);
    image.src = copy.toDataURL();
  }
  const canvas = element("canvas", { "aria-hidden": "true" });
  const cell = element("span", { class: "cv-cell", hidden: true });
  const pointed = element("span", { class: "cv-cell cv-pointed", hidden: true });
  const erased = element("span", { class: "cv-erased" });
  const root = element("div", {
    class: "cv-stage", tabindex: "0", role: "application",
    "aria-label": `${label}. Arrow keys move over it and name the words for which the model looked there.`,
  }, image, canvas, erased, cell, pointed);
  let photo = null; // the pixels of the picture

  const ready = image.decode().then(() => {
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    photo = context.getImageData(0, 0, canvas.width, canvas.height);
  });

  const place = (box, rows, cols, at) => {
    box.hidden = !at;
    if (!at) return;
    box.style.left = `${(100 * at[1]) / cols}%`;
    box.style.top = `${(100 * at[0]) / rows}%`;
    box.style.width = `${100 / cols}%`;
    box.style.height = `${100 / rows}%`;
  };

  return {
    element: root,
    image,
    ready,
    // Shows a map { values, rows, cols, top, cell }, or the picture alone for null.
    show(map, style) {
      root.classList.toggle("cv-mapped", Boolean(map && photo));
      place(cell, map?.rows, map?.cols, map?.cell);
      if (!map || !photo) return;
      const { width, height } = canvas;
      canvas.getContext("2d").putImageData(new ImageData(paint(photo.data, width, height, map, style), width), 0, 0);
    },
    point(rows, cols, at) {
      place(pointed, rows, cols, at);
    },
    // Covers erased cells, given as a set of "row,col".
    cover(rows, cols, cells) {
      erased.replaceChildren(...[...cells].map((key) => {
        const box = element("span");
        place(box, rows, cols, key.split(",").map(Number));
        return box;
      }));
    },
    cellAt(event, rows, cols) {
      const area = root.getBoundingClientRect();
      const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
      const col = Math.floor(((event.clientX - area.left) / area.width) * cols);
      return [Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(col, 0), cols - 1)];
    },
  };
}

export { createStage, element };
