// Paints a map on a picture. The formulas are those of painting.py; a test compares the two.
//
// A map is a grid of values, row by row. `top` is the value that is drawn brightest. Four styles:
//   spotlight  the photo, dimmed and in grey where the value is low; a line around the cells with half of the total
//   heat       the photo in grey under colors (magma)
//   contour    the photo as it is; lines around the cells with a quarter, half and three quarters of the total
//   blocks     spotlight on the true cells of the grid, without interpolation

const STYLES = ["spotlight", "heat", "contour", "blocks"];
const DIM = 0.27; // brightness of a part without attention
const FULL_LIGHT = 0.65, LIGHT_POWER = 0.75; // the part of the scale from which on the photo has its full light
const LINE = 1 / 300; // width of a line, relative to the shorter side
const DARK_LINE = 0.65; // opacity of the dark side of a line
const MUTED = 0.85, MUTED_GREY = 21; // heat: the grey photo has less contrast
const LEAST_COVER = 0.6; // heat: opacity of the lowest color, relative to that of the highest

const MAGMA =
  "00000401000501010601010802010902020b02020d03030f03031204041405041606051806051a07061c08071e090720" +
  "0a08220b09240c09260d0a290e0b2b100b2d110c2f120d31130d34140e36150e38160f3b180f3d19103f1a10421c1044" +
  "1d11471e114920114b21114e22115024125325125527125829115a2a115c2c115f2d11612f1163311165331067341069" +
  "36106b38106c390f6e3b0f703d0f713f0f72400f74420f75440f764510774710784910784a10794c117a4e117b4f127b" +
  "51127c52137c54137d56147d57157e59157e5a167e5c167f5d177f5f187f601880621980641a80651a80671b80681c81" +
  "6a1c816b1d816d1d816e1e81701f81721f817320817521817621817822817922827b23827c23827e2482802582812581" +
  "8326818426818627818827818928818b29818c29818e2a81902a81912b81932b80942c80962c80982d80992d809b2e7f" +
  "9c2e7f9e2f7fa02f7fa1307ea3307ea5317ea6317da8327daa337dab337cad347cae347bb0357bb2357bb3367ab5367a" +
  "b73779b83779ba3878bc3978bd3977bf3a77c03a76c23b75c43c75c53c74c73d73c83e73ca3e72cc3f71cd4071cf4070" +
  "d0416fd2426fd3436ed5446dd6456cd8456cd9466bdb476adc4869de4968df4a68e04c67e24d66e34e65e44f64e55064" +
  "e75263e85362e95462ea5661eb5760ec5860ed5a5fee5b5eef5d5ef05f5ef1605df2625df2645cf3655cf4675cf4695c" +
  "f56b5cf66c5cf66e5cf7705cf7725cf8745cf8765cf9785df9795df97b5dfa7d5efa7f5efa815ffb835ffb8560fb8761" +
  "fc8961fc8a62fc8c63fc8e64fc9065fd9266fd9467fd9668fd9869fd9a6afd9b6bfe9d6cfe9f6dfea16efea36ffea571" +
  "fea772fea973feaa74feac76feae77feb078feb27afeb47bfeb67cfeb77efeb97ffebb81febd82febf84fec185fec287" +
  "fec488fec68afec88cfeca8dfecc8ffecd90fecf92fed194fed395fed597fed799fed89afdda9cfddc9efddea0fde0a1" +
  "fde2a3fde3a5fde5a7fde7a9fde9aafdebacfcecaefceeb0fcf0b2fcf2b4fcf4b6fcf6b8fcf7b9fcf9bbfcfbbdfcfdbf";
const COLOR_MAP = Uint8Array.from(MAGMA.match(/../g), (pair) => parseInt(pair, 16));

// The value from which on cells belong to the smallest set with this share of the total. Equal cells are all in it.
function shareThreshold(values, share) {
  const sorted = Float64Array.from(values, (value) => Math.max(value, 0)).sort().reverse();
  const needed = share * sorted.reduce((sum, value) => sum + value, 0) * (1 - 1e-6);
  let sum = 0;
  for (const value of sorted) {
    sum += value;
    if (sum >= needed) return value;
  }
  return 0;
}

// The share of the cells that hold half of the total: 0.5 for an even map, 1 / cells for a single cell.
function halfArea(values) {
  const positive = values.filter((value) => value > 0);
  if (!positive.length) return 1;
  const threshold = shareThreshold(values, 0.5) * (1 - 1e-6);
  const above = positive.filter((value) => value >= threshold);
  // Of an even map all cells are equal; half of them would hold half.
  const sum = above.reduce((total, value) => total + value, 0), all = positive.reduce((total, value) => total + value, 0);
  return (above.length * Math.min(1, (0.5 * all) / sum)) / values.length;
}

// How concentrated a map is, from 0 (even) to 1 (one cell), on a scale of ratios.
function focus(values) {
  const cells = values.length;
  if (cells < 3) return 1;
  return Math.min(1, Math.max(0, Math.log(0.5 / halfArea(values)) / Math.log(0.5 * cells)));
}

// For each pixel of a line: the cells before and after it, and the share of the second (a smoothstep between centers).
function cellShares(cells, pixels, grid) {
  const before = new Uint16Array(pixels), after = new Uint16Array(pixels), part = new Float32Array(pixels);
  for (let i = 0; i < pixels; i++) {
    const position = ((i + 0.5) * cells) / pixels;
    if (grid) {
      before[i] = after[i] = Math.min(Math.floor(position), cells - 1);
      continue;
    }
    const first = Math.floor(position - 0.5), t = position - 0.5 - first;
    before[i] = Math.max(first, 0);
    after[i] = Math.min(first + 1, cells - 1);
    part[i] = t * t * (3 - 2 * t);
  }
  return { before, after, part };
}

// The value at every pixel.
function project(values, rows, cols, width, height, grid) {
  const field = new Float32Array(width * height);
  const across = cellShares(cols, width, grid), down = cellShares(rows, height, grid);
  for (let y = 0, i = 0; y < height; y++) {
    const upper = down.before[y] * cols, lower = down.after[y] * cols, v = down.part[y];
    for (let x = 0; x < width; x++, i++) {
      const left = across.before[x], right = across.after[x], u = across.part[x];
      const over = values[upper + left] * (1 - u) + values[upper + right] * u;
      const under = values[lower + left] * (1 - u) + values[lower + right] * u;
      field[i] = over * (1 - v) + under * v;
    }
  }
  return field;
}

// The picture (RGBA, not changed) with the map on it.
function paint(rgba, width, height, map, { style = "spotlight", grid = false, opacity = 0.85 } = {}) {
  const { values, rows, cols, top } = map;
  const field = project(values, rows, cols, width, height, grid || style === "blocks");
  const out = new Uint8ClampedArray(rgba);
  if (style === "heat") paintHeat(rgba, out, field, top, opacity);
  else if (style !== "contour") paintSpotlight(rgba, out, field, top, opacity);
  const total = values.reduce((sum, value) => sum + Math.max(value, 0), 0);
  if (style !== "heat" && total > 0) {
    const line = Math.max(1, Math.round(Math.min(width, height) * LINE));
    if (style === "contour") {
      paintLine(out, field, width, height, shareThreshold(values, 0.25), line);
      paintLine(out, field, width, height, shareThreshold(values, 0.75), line);
    }
    paintLine(out, field, width, height, shareThreshold(values, 0.5), style === "contour" ? 2 * line : line);
  }
  return out;
}

const luma = (rgba, i) => 0.299 * rgba[i] + 0.587 * rgba[i + 1] + 0.114 * rgba[i + 2];

// The light of a part of the photo, from 0 to 1, for its value relative to the top of the scale.
const lightAt = (value) => Math.min(1, Math.max(0, value / FULL_LIGHT)) ** LIGHT_POWER;

function paintSpotlight(rgba, out, field, top, opacity) {
  for (let i = 0, p = 0; i < field.length; i++, p += 4) {
    const light = 1 - opacity + opacity * lightAt(field[i] / top);
    const dark = DIM * luma(rgba, p);
    for (let c = p; c < p + 3; c++) out[c] = dark + light * (rgba[c] - dark);
  }
}

function paintHeat(rgba, out, field, top, opacity) {
  for (let i = 0, p = 0; i < field.length; i++, p += 4) {
    const level = Math.min(255, Math.max(0, Math.floor((field[i] / top) * 255 + 0.5)));
    const cover = opacity * (LEAST_COVER + ((1 - LEAST_COVER) * level) / 255);
    const rest = (1 - cover) * (MUTED * luma(rgba, p) + MUTED_GREY);
    for (let c = 0; c < 3; c++) out[p + c] = cover * COLOR_MAP[3 * level + c] + rest;
  }
}

// A line around the pixels with at least `threshold`: white inside, dark outside. It is drawn on every background.
function paintLine(out, field, width, height, threshold, line) {
  const least = threshold * (1 - 1e-5), inside = new Uint8Array(field.length);
  for (let i = 0; i < field.length; i++) inside[i] = field[i] >= least ? 1 : 0;
  const outer = near(inside, width, height, line), inner = near(inside.map((v) => 1 - v), width, height, line);
  for (let i = 0, p = 0; i < field.length; i++, p += 4) {
    if (inside[i] && inner[i]) out[p] = out[p + 1] = out[p + 2] = 255;
    else if (!inside[i] && outer[i]) for (let c = p; c < p + 3; c++) out[c] = out[c] * (1 - DARK_LINE);
  }
}

// Which pixels have a marked one within `distance` pixels, along both axes.
function near(marked, width, height, distance) {
  const pass = (source, length, lines, step, lineStep) => {
    const result = new Uint8Array(source.length);
    for (let line = 0; line < lines; line++) {
      const start = line * lineStep;
      let last = -Infinity;
      for (let i = 0; i < length; i++) {
        if (source[start + i * step]) last = i;
        if (i - last <= distance) result[start + i * step] = 1;
      }
      last = Infinity;
      for (let i = length - 1; i >= 0; i--) {
        if (source[start + i * step]) last = i;
        if (last - i <= distance) result[start + i * step] = 1;
      }
    }
    return result;
  };
  return pass(pass(marked, width, height, 1, width), height, width, width, 1);
}

// The scale from none to most, 256 pixels of RGBA: over a middle grey (heat) or a light color (spotlight).
function scaleColors({ style, opacity }) {
  const rgba = new Uint8ClampedArray(1024), field = Float32Array.from({ length: 256 }, (_, x) => x / 255);
  for (let i = 0; i < 1024; i += 4) rgba.set(style === "heat" ? [140, 140, 140, 255] : [120, 190, 235, 255], i);
  const out = new Uint8ClampedArray(rgba);
  (style === "heat" ? paintHeat : paintSpotlight)(rgba, out, field, 1, opacity);
  return out;
}

export { COLOR_MAP, STYLES, focus, halfArea, lightAt, paint, project, scaleColors, shareThreshold };
