/* Reading a picture file as captioner/images does: decoded by the browser, upright, transparent parts white, squashed to
   the model's square with Pillow's arithmetic. A large JPEG is first reduced by 2, 4 or 8, as Pillow's JPEG
   decoder does it; of an unusual file, the means of the browser's pixels are taken. */
import { UnusualJpeg } from "./jpeg_coefficients.js";
import { reducedJpeg } from "./jpeg_reduction.js";
import { pictureHeader, withoutOrientation } from "./picture_header.js";
import { reduce, squash } from "./resampling.js";

const BAND = 512; // rows that are copied from the decoded picture at a time; a multiple of 8
const LARGEST_SIDE = 32_767; // pixels; what canvases and decoders can hold

// A sentence about a file that has no caption.
class PictureError extends Error {}

const KINDS = [ // by the first bytes: what many browsers cannot decode
  ["a HEIC file", (text) => text.slice(4, 8) === "ftyp" && /^(hei[cxms]|hev[cx]|heif|mif1|msf1)/.test(text.slice(8))],
  ["a TIFF or raw file", (text) => /^(II\*\0|MM\0\*|II\+\0|MM\0\+|FUJIFILM|IIRO|IIU\0)/.test(text)],
  ["a PDF file", (text) => text.startsWith("%PDF-")],
  ["a video", (text) => text.slice(4, 8) === "ftyp" || text.startsWith("\x1aE\xdf\xa3")],
];

function unreadable(bytes, name) {
  const start = String.fromCharCode(...bytes.subarray(0, 32)), kind = KINDS.find(([, matches]) => matches(start))?.[0];
  return new PictureError(kind
    ? `${name} is ${kind}, which this browser can't read. Convert it to JPEG or PNG.`
    : `${name} can't be read as a photo. Choose a JPEG, PNG or WebP file.`);
}

// How a stored picture becomes upright: x' and y' of a stored pixel, as in ORIENTATIONS of captioner/images/frame.py.
const MIRROR_X = [2, 3, 7, 8], MIRROR_Y = [3, 4, 6, 7], SWAP = [5, 6, 7, 8];

function upright({ pixels, width, height }, orientation) {
  if (orientation === 1) return { pixels, width, height };
  const [mirrorX, mirrorY, swap] = [MIRROR_X, MIRROR_Y, SWAP].map((list) => list.includes(orientation));
  const source = new Uint32Array(pixels.buffer), result = new Uint32Array(source.length);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const column = mirrorX ? width - 1 - x : x, row = mirrorY ? height - 1 - y : y;
      result[swap ? column * height + row : row * width + column] = source[y * width + x];
    }
  }
  return { pixels: new Uint8ClampedArray(result.buffer), width: swap ? height : width, height: swap ? width : height };
}

// A canvas with this part of the picture on white.
function drawn(bitmap, width, height, draw) {
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  draw(context, bitmap);
  return { canvas, context };
}

// The stored pixels, reduced by a whole number, band by band: a canvas of the whole picture may be too large.
function storedPixels(bitmap, factor) {
  const { width, height } = bitmap, columns = Math.ceil(width / factor), rows = Math.ceil(height / factor);
  const pixels = new Uint8ClampedArray(columns * rows * 4);
  for (let top = 0; top < height; top += BAND) {
    const n = Math.min(BAND, height - top);
    const { context } = drawn(bitmap, width, n, (target) => target.drawImage(bitmap, 0, -top));
    const band = context.getImageData(0, 0, width, n).data;
    pixels.set(factor > 1 ? reduce(band, width, n, factor, factor).pixels : band, (top / factor) * columns * 4);
  }
  return { pixels, width: columns, height: rows };
}

// By how much Pillow's decoder reduces a JPEG: no side gets shorter than `draft` sizes of the square.
function reduction(width, height, size, { draft }) {
  const least = Math.ceil(draft * size);
  return [8, 4, 2].find((factor) => Math.min(width, height) >= least * factor) ?? 1;
}

// The stored pixels of a JPEG, reduced by the decoder; null for a file that only the browser can decode.
function decodedReduced(bytes, factor, { sampling }) {
  if (!sampling) return null;
  try {
    return reducedJpeg(bytes, factor, sampling);
  } catch (error) {
    if (error instanceof UnusualJpeg || error instanceof RangeError) return null; // RangeError: too little memory
    throw error;
  }
}

// The upright picture as a JPEG for the screen, with at most `longSide` pixels on its longer side.
function preview(bitmap, orientation, longSide) {
  const scale = Math.min(1, longSide / Math.max(bitmap.width, bitmap.height));
  const width = Math.max(1, Math.round(bitmap.width * scale)), height = Math.max(1, Math.round(bitmap.height * scale));
  const [mirrorX, mirrorY, swap] = [MIRROR_X, MIRROR_Y, SWAP].map((list) => list.includes(orientation));
  const { canvas } = drawn(bitmap, swap ? height : width, swap ? width : height, (context) => {
    context.imageSmoothingQuality = "high";
    if (swap) context.transform(0, 1, 1, 0, 0, 0);
    if (mirrorX) context.transform(-1, 0, 0, 1, width, 0);
    if (mirrorY) context.transform(1, 0, 0, -1, 0, height);
    context.drawImage(bitmap, 0, 0, width, height);
  });
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.9 });
}

// Reads a file: { pixels: RGB of the model's square, width, height, picture }. `limits` are { pixels, draft }: the most
// pixels, and the size below which no JPEG is reduced, in sizes of the square. `longSide` asks for a preview of that size
// as `picture`.
async function readPicture(file, name, size, limits, longSide = 0) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (!bytes.length) throw new PictureError(`${name} is empty.`);
  const header = pictureHeader(bytes), isJpeg = "width" in header, { orientation } = header;
  if (isJpeg) checkSize(header.width, header.height, name, limits); // before it is decoded
  const stored = withoutOrientation(bytes, header);
  const factor = isJpeg ? reduction(header.width, header.height, size, limits) : 1;
  // Without a type, the browser decides by the content: SVG, which could refer to other files, is then no picture.
  const decoding = createImageBitmap(new Blob([stored]), { colorSpaceConversion: "none" }).catch(() => {
    throw unreadable(bytes, name);
  });
  const reduced = factor > 1 ? decodedReduced(bytes, factor, header) : null; // while the browser decodes in another thread
  const bitmap = await decoding;
  try {
    checkSize(bitmap.width, bitmap.height, name, limits);
    const { pixels, width, height } = upright(reduced ?? storedPixels(bitmap, factor), orientation);
    const swapped = SWAP.includes(orientation);
    return {
      pixels: squash(pixels, width, height, size),
      width: swapped ? bitmap.height : bitmap.width,
      height: swapped ? bitmap.width : bitmap.height,
      picture: longSide ? await preview(bitmap, orientation, longSide) : null,
    };
  } catch (error) {
    if (error instanceof PictureError) throw error;
    throw new PictureError(`${name} is too large for this browser (${bitmap.width} x ${bitmap.height} pixels).`);
  } finally {
    bitmap.close();
  }
}

function checkSize(width, height, name, limits) {
  if (width * height > limits.pixels || Math.max(width, height) > LARGEST_SIDE) {
    throw new PictureError(`${name} has ${width} x ${height} pixels, more than this page reads.`);
  }
}

// The pixels with cells of the grid, [[row, col], …], painted in the mean color of the picture.
function withoutCells(pixels, size, rows, cols, cells) {
  if (!cells.length) return pixels;
  const sums = [0, 0, 0], result = pixels.slice();
  for (let i = 0; i < pixels.length; i++) sums[i % 3] += pixels[i];
  const color = sums.map((sum) => roundHalfToEven(sum / (size * size)));
  const edge = (k, n) => Math.ceil((k * size) / n);
  for (const [row, col] of cells) {
    for (let y = edge(row, rows); y < edge(row + 1, rows); y++) {
      for (let x = edge(col, cols); x < edge(col + 1, cols); x++) result.set(color, (y * size + x) * 3);
    }
  }
  return result;
}

function roundHalfToEven(value) {
  const whole = Math.floor(value);
  return value - whole === 0.5 ? whole + (whole % 2) : Math.round(value);
}

export { PictureError, readPicture, withoutCells };
