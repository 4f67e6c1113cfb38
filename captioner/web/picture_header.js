// The header of a picture file, as far as browsers and Pillow treat it differently: the size of a JPEG, and the EXIF
// orientation of JPEG and WebP. Of other formats, browsers apply the orientation as Pillow does.

const ORIENTATION = 0x0112; // the tag
const IFD_ENTRY = 12; // bytes
const EXIF = 0x45786966, RIFF = 0x52494646, WEBP = 0x57454250; // as big-endian text
const ADOBE = 0x41646f62, RED = 0x52; // "Adob", and "R"
const WEBP_EXIF = 0x45584946;
const UPRIGHT = { orientation: 1, orientationAt: -1 };

// { orientation, orientationAt, littleEndian } and, of a JPEG, { width, height, sampling }. `orientationAt` is where the
// value of the tag is in the file, or -1. `sampling` is how many values luma has for one of chroma, across and down; null
// if the file stores other components, or another number of values.
function pictureHeader(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.byteLength >= 16 && view.getUint32(0) === RIFF && view.getUint32(8) === WEBP) return webpHeader(view);
  return (view.byteLength >= 4 && view.getUint16(0) === 0xffd8 && jpegHeader(view)) || UPRIGHT;
}

function jpegHeader(view) {
  let at = 2, orientation = UPRIGHT, isYcc = true;
  while (at + 4 <= view.byteLength) {
    if (view.getUint8(at) !== 0xff) return null;
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) { // a fill byte
      at++;
      continue;
    }
    if (marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8)) { // markers without a length
      at += 2;
      continue;
    }
    const length = view.getUint16(at + 2), end = at + 2 + length;
    if (length < 2 || end > view.byteLength) return null;
    if (marker === 0xe1 && length >= 8 && view.getUint32(at + 4) === EXIF && orientation === UPRIGHT) {
      orientation = exifOrientation(view, at + 10, end);
    }
    if (marker === 0xee && length >= 14 && view.getUint32(at + 4) === ADOBE) isYcc = view.getUint8(at + 15) === 1;
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame && length >= 8) {
      const [height, width] = [view.getUint16(at + 5), view.getUint16(at + 7)];
      return { ...orientation, width, height, sampling: chromaSampling(view, at + 9, end, isYcc) };
    }
    if (marker === 0xda || marker === 0xd9) return null; // the picture's data begins, or the file ends
    at = end;
  }
  return null;
}

// From the components of a frame: each has an identifier, and the numbers of its values in a byte.
function chromaSampling(view, at, end, isYcc) {
  const count = view.getUint8(at);
  if (count === 1) return [1, 1];
  if (!isYcc || count !== 3 || at + 10 > end || view.getUint8(at + 1) === RED) return null;
  const [luma, cb, cr] = [2, 5, 8].map((offset) => view.getUint8(at + offset));
  const ratios = [(luma >> 4) / (cb >> 4), (luma & 15) / (cb & 15)];
  return cb === cr && ratios.every((ratio) => ratio === 1 || ratio === 2) ? ratios : null;
}

function webpHeader(view) {
  for (let at = 12; at + 8 <= view.byteLength;) {
    const length = view.getUint32(at + 4, true), start = at + 8, end = start + length;
    if (view.getUint32(at) === WEBP_EXIF && end <= view.byteLength && length >= 8) {
      return exifOrientation(view, view.getUint32(start) === EXIF ? start + 6 : start, end);
    }
    at = end + (length % 2); // chunks begin at even places
  }
  return UPRIGHT;
}

// The orientation in the TIFF structure between two places.
function exifOrientation(view, start, end) {
  if (start + 8 > end) return UPRIGHT;
  const littleEndian = view.getUint16(start) === 0x4949;
  if (!littleEndian && view.getUint16(start) !== 0x4d4d) return UPRIGHT;
  const table = start + view.getUint32(start + 4, littleEndian);
  if (table + 2 > end) return UPRIGHT;
  for (let i = 0, n = view.getUint16(table, littleEndian); i < n; i++) {
    const entry = table + 2 + i * IFD_ENTRY;
    if (entry + IFD_ENTRY > end) return UPRIGHT;
    if (view.getUint16(entry, littleEndian) !== ORIENTATION) continue;
    const value = view.getUint16(entry + 8, littleEndian);
    return value >= 1 && value <= 8 ? { orientation: value, orientationAt: entry + 8, littleEndian } : UPRIGHT;
  }
  return UPRIGHT;
}

// The file with the orientation 1: decoders then give the pixels as they are stored.
function withoutOrientation(bytes, { orientation, orientationAt, littleEndian }) {
  if (orientation === 1) return bytes;
  const copy = bytes.slice();
  new DataView(copy.buffer).setUint16(orientationAt, 1, littleEndian);
  return copy;
}

export { pictureHeader, withoutOrientation };
