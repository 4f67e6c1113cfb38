// The header of a JPEG file: its size in pixels and its EXIF orientation, read as captioner/images reads them.

const ORIENTATION = 0x0112; // the tag
const IFD_ENTRY = 12; // bytes

// { width, height, orientation, orientationAt }, or null if the bytes are no JPEG. `orientationAt` is where the value of
// the tag is in the file, or -1.
function jpegHeader(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.byteLength < 4 || view.getUint16(0) !== 0xffd8) return null;
  let at = 2, orientation = { value: 1, at: -1 };
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
    if (marker === 0xe1 && orientation.at < 0) orientation = exifOrientation(view, at + 4, end) ?? orientation;
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame && length >= 8) {
      return { width: view.getUint16(at + 7), height: view.getUint16(at + 5), orientation: orientation.value, orientationAt: orientation.at };
    }
    if (marker === 0xda || marker === 0xd9) return null; // the picture's data begins, or the file ends
    at = end;
  }
  return null;
}

function exifOrientation(view, start, end) {
  const tiff = start + 6;
  if (end - start < 14 || view.getUint32(start) !== 0x45786966) return null; // "Exif"
  const little = view.getUint16(tiff) === 0x4949;
  if (!little && view.getUint16(tiff) !== 0x4d4d) return null;
  const table = tiff + view.getUint32(tiff + 4, little);
  if (table + 2 > end) return null;
  for (let i = 0, n = view.getUint16(table, little); i < n; i++) {
    const entry = table + 2 + i * IFD_ENTRY;
    if (entry + IFD_ENTRY > end) return null;
    if (view.getUint16(entry, little) !== ORIENTATION) continue;
    const value = view.getUint16(entry + 8, little);
    return { value: value >= 1 && value <= 8 ? value : 1, at: entry + 8 };
  }
  return null;
}

// The file with the orientation 1: decoders then give the pixels as they are stored.
function withoutOrientation(bytes, header) {
  if (header.orientation === 1) return bytes;
  const copy = bytes.slice();
  copy.fill(0, header.orientationAt, header.orientationAt + 2);
  const little = exifIsLittle(copy, header.orientationAt);
  copy[header.orientationAt + (little ? 0 : 1)] = 1;
  return copy;
}

// The byte order, from the type of the entry (a 16-bit number, 3) before the value.
const exifIsLittle = (bytes, at) => bytes[at - 6] === 3;

export { jpegHeader, withoutOrientation };
