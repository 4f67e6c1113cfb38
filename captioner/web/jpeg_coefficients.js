/* The coefficients of a JPEG: baseline, extended and progressive files with Huffman codes and 8 bits, as ITU-T T.81 has
   them. Browsers give pixels only, and Pillow reduces large photos before there are pixels. */

const ZIGZAG = Uint8Array.of(0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
  28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63);
const MOST_COEFFICIENTS = 1e8; // two bytes each
const AHEAD = 4; // bytes
const MOST_SCANS = 100; // usual are 1 to 10
const SOF0 = 0xc0, SOF2 = 0xc2, DHT = 0xc4, EOI = 0xd9, SOS = 0xda, DQT = 0xdb, DRI = 0xdd;

// Why a file is left to the browser's decoder.
class UnusualJpeg extends Error {}

// For the next 16 bits: length of the code << 8 | symbol, or 0.
function huffmanTable(counts, symbols) {
  const table = new Uint16Array(1 << 16);
  for (let length = 1, at = 0, next = 0; length <= 16; length++) {
    for (let i = 0; i < counts[length - 1]; i++, next++) {
      const end = at + (1 << (16 - length));
      if (end > 1 << 16) throw new UnusualJpeg("its codes are damaged");
      table.fill((length << 8) | symbols[next], at, end);
      at = end;
    }
  }
  return table;
}

// Reads the data of a scan, a few bytes ahead. After its end, at a marker, all bits are 0.
class BitReader {
  constructor(bytes, at) {
    Object.assign(this, { bytes, at, bits: 0, count: 0, beyond: 0 });
  }

  #fill() {
    while (this.count <= 24) {
      let byte = 0;
      if (this.at >= this.bytes.length) throw new UnusualJpeg("it is cut off");
      if (this.bytes[this.at] !== 0xff) byte = this.bytes[this.at++];
      else if (this.bytes[this.at + 1] === 0) {
        byte = 0xff;
        this.at += 2;
      } else if (++this.beyond > AHEAD) throw new UnusualJpeg("its data is damaged");
      this.bits = (this.bits << 8) | byte;
      this.count += 8;
    }
  }

  symbol(table) {
    if (this.count < 16) this.#fill();
    const entry = table[(this.bits >>> (this.count - 16)) & 0xffff];
    if (!entry) throw new UnusualJpeg("its data is damaged");
    this.count -= entry >> 8;
    return entry & 255;
  }

  read(n) {
    if (this.count < n) this.#fill();
    this.count -= n;
    return (this.bits >>> this.count) & ((1 << n) - 1);
  }

  // A number of n bits, of which the first is 0 for negative ones.
  signed(n) {
    if (!n) return 0;
    const value = this.read(n);
    return value < 1 << (n - 1) ? value - (1 << n) + 1 : value;
  }

  // Goes on behind the next restart marker.
  restart() {
    this.bits = this.count = this.beyond = 0;
    if (this.bytes[this.at] !== 0xff || (this.bytes[this.at + 1] & 0xf8) !== 0xd0) throw new UnusualJpeg("a restart marker is missing");
    this.at += 2;
  }
}

// How a scan reads a block, by what it has of it. `at` is where the block begins; `scan` has { low, start, end, endRun }.
function baselineBlock(reader, component, at) {
  const { coefficients, dc, ac } = component;
  component.last += reader.signed(reader.symbol(dc));
  coefficients[at] = component.last;
  for (let k = 1; k < 64; k++) {
    const symbol = reader.symbol(ac), size = symbol & 15;
    k += symbol >> 4;
    if (size) coefficients[at + ZIGZAG[k & 63]] = reader.signed(size);
    else if (symbol !== 0xf0) return;
  }
}

function firstDc(reader, component, at, { low }) {
  component.last += reader.signed(reader.symbol(component.dc));
  component.coefficients[at] = component.last << low;
}

function nextDc(reader, { coefficients }, at, { low }) {
  coefficients[at] |= reader.read(1) << low;
}

function firstAc(reader, { coefficients, ac }, at, scan) {
  if (scan.endRun) {
    scan.endRun--;
    return;
  }
  for (let k = scan.start; k <= scan.end; k++) {
    const symbol = reader.symbol(ac), run = symbol >> 4, size = symbol & 15;
    if (size) {
      k += run;
      coefficients[at + ZIGZAG[k & 63]] = reader.signed(size) * (1 << scan.low);
    } else if (run === 15) k += 15;
    else {
      scan.endRun = (1 << run) - 1 + (run ? reader.read(run) : 0);
      return;
    }
  }
}

function nextAc(reader, { coefficients, ac }, at, scan) {
  const bit = 1 << scan.low;
  const correct = (place) => {
    if (reader.read(1) && !(coefficients[place] & bit)) coefficients[place] += coefficients[place] > 0 ? bit : -bit;
  };
  let k = scan.start;
  if (!scan.endRun) {
    for (; k <= scan.end; k++) {
      const symbol = reader.symbol(ac);
      let run = symbol >> 4, value = 0;
      if (symbol & 15) value = reader.read(1) ? bit : -bit;
      else if (run < 15) {
        scan.endRun = (1 << run) + (run ? reader.read(run) : 0);
        break;
      }
      for (; k <= scan.end; k++) { // to the place of the new value, past `run` zeros
        const place = at + ZIGZAG[k];
        if (coefficients[place]) correct(place);
        else if (!run--) {
          coefficients[place] = value;
          break;
        }
      }
    }
  }
  if (scan.endRun) {
    for (; k <= scan.end; k++) if (coefficients[at + ZIGZAG[k]]) correct(at + ZIGZAG[k]);
    scan.endRun--;
  }
}

function readFrame(view, at, progressive) {
  const height = view.getUint16(at + 1), width = view.getUint16(at + 3), count = view.getUint8(at + 5);
  if (view.getUint8(at) !== 8 || !height || !width || ![1, 3].includes(count)) throw new UnusualJpeg("it has other pixels than usual");
  const components = Array.from({ length: count }, (_, i) => {
    const sampling = view.getUint8(at + 7 + 3 * i);
    return { id: view.getUint8(at + 6 + 3 * i), h: sampling >> 4, v: sampling & 15, quantization: view.getUint8(at + 8 + 3 * i), last: 0 };
  });
  if (components.some(({ h, v }) => !h || !v || h > 4 || v > 4)) throw new UnusualJpeg("its sampling is damaged");
  const most = { h: Math.max(...components.map(({ h }) => h)), v: Math.max(...components.map(({ v }) => v)) };
  const across = Math.ceil(width / (8 * most.h)), down = Math.ceil(height / (8 * most.v)); // units of all components
  const total = components.reduce((sum, { h, v }) => sum + across * h * down * v * 64, 0);
  if (total > MOST_COEFFICIENTS) throw new UnusualJpeg("it is too large");
  for (const component of components) {
    const { h, v } = component;
    Object.assign(component, {
      blocksAcross: across * h, // those in the memory; the picture may end before
      ownAcross: Math.ceil(Math.ceil((width * h) / most.h) / 8), ownDown: Math.ceil(Math.ceil((height * v) / most.v) / 8),
      coefficients: new Int16Array(across * h * down * v * 64), table: null,
    });
  }
  return { width, height, components, most, across, down, progressive };
}

// Reads a scan and returns where it ends.
function readScan(bytes, at, frame, tables) {
  const count = bytes[at], scan = { endRun: 0 };
  const components = Array.from({ length: count }, (_, i) => {
    const component = frame.components.find(({ id }) => id === bytes[at + 1 + 2 * i]), used = bytes[at + 2 + 2 * i];
    if (!component) throw new UnusualJpeg("a component is missing");
    component.table ??= tables.quantization[component.quantization];
    return Object.assign(component, { dc: tables.dc[used >> 4], ac: tables.ac[used & 15], last: 0 });
  });
  at += 1 + 2 * count;
  [scan.start, scan.end] = [bytes[at], bytes[at + 1]];
  const high = bytes[at + 2] >> 4;
  scan.low = bytes[at + 2] & 15;
  if (scan.end > 63 || (scan.start && count > 1)) throw new UnusualJpeg("a scan is damaged");
  const readBlock = !frame.progressive ? baselineBlock : scan.start ? (high ? nextAc : firstAc) : high ? nextDc : firstDc;
  const needs = [...(readBlock === baselineBlock || readBlock === firstDc ? ["dc"] : []), ...(readBlock === baselineBlock || scan.start ? ["ac"] : [])];
  if (components.some((component) => !component.table || needs.some((kind) => !component[kind]))) throw new UnusualJpeg("a table is missing");
  const reader = new BitReader(bytes, at + 3), [only] = components, single = count === 1;
  const across = single ? only.ownAcross : frame.across, units = across * (single ? only.ownDown : frame.down);
  for (let unit = 0; unit < units; unit++) {
    if (tables.restart && unit && unit % tables.restart === 0) {
      reader.restart();
      scan.endRun = 0;
      for (const component of components) component.last = 0;
    }
    const row = Math.floor(unit / across), column = unit % across;
    if (single) readBlock(reader, only, (row * only.blocksAcross + column) * 64, scan);
    else {
      for (const component of components) {
        const { h, v, blocksAcross } = component;
        for (let y = 0; y < v; y++) {
          for (let x = 0; x < h; x++) readBlock(reader, component, ((row * v + y) * blocksAcross + column * h + x) * 64, scan);
        }
      }
    }
  }
  return reader.at;
}

// { width, height, most: { h, v }, components: [{ h, v, blocksAcross, coefficients, table }] }. A block has 64 coefficients,
// row by row, which have to be multiplied by those of the table. Throws an UnusualJpeg for a file that has to be left to
// the browser.
function jpegCoefficients(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tables = { quantization: [], dc: [], ac: [], restart: 0 };
  let frame = null, at = 2, scans = 0;
  try {
    for (;;) {
      while (bytes[at] !== 0xff || [0, 0xff].includes(bytes[at + 1]) || (bytes[at + 1] & 0xf8) === 0xd0) {
        if (++at >= bytes.length) throw new UnusualJpeg("it is cut off");
      }
      const marker = bytes[at + 1];
      if (marker === EOI) break;
      const start = at + 4, end = at + 2 + view.getUint16(at + 2);
      at = end;
      if (marker === DQT) {
        for (let k = start; k < end;) {
          const wide = bytes[k] >> 4, table = new Int32Array(64);
          for (let i = 0; i < 64; i++) table[ZIGZAG[i]] = wide ? view.getUint16(k + 1 + 2 * i) : bytes[k + 1 + i];
          tables.quantization[bytes[k] & 15] = table;
          k += 65 + 64 * wide;
        }
      } else if (marker === DHT) {
        for (let k = start; k < end;) {
          const counts = bytes.subarray(k + 1, k + 17), total = counts.reduce((sum, n) => sum + n, 0);
          tables[bytes[k] >> 4 ? "ac" : "dc"][bytes[k] & 15] = huffmanTable(counts, bytes.subarray(k + 17, k + 17 + total));
          k += 17 + total;
        }
      } else if (marker === DRI) tables.restart = view.getUint16(start);
      else if (marker >= SOF0 && marker <= SOF2 && !frame) frame = readFrame(view, start, marker === SOF2);
      else if (marker >= SOF0 && marker <= 0xcf && marker !== 0xc8) throw new UnusualJpeg("it is coded in another way");
      else if (marker === SOS) {
        if (!frame || ++scans > MOST_SCANS) throw new UnusualJpeg("its scans are damaged");
        at = readScan(bytes, start, frame, tables);
      }
    }
  } catch (error) {
    if (error instanceof RangeError) throw new UnusualJpeg("it is cut off, or there is too little memory"); // of DataView, and of arrays
    throw error;
  }
  if (!frame || frame.components.some(({ table }) => !table)) throw new UnusualJpeg("it is cut off");
  return frame;
}

export { UnusualJpeg, jpegCoefficients };
