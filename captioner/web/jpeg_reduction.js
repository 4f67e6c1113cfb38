/* A large JPEG as Pillow decodes it at a half, a quarter or an eighth of its size, with the whole numbers of libjpeg-turbo
   (jidctint.c, jidctred.c, jdmaster.c, jdsample.c, jdcolor.c): a reduced block has the means of the pixels. A mean of
   the pixels that a browser gives differs by the rounding of each pixel, and that already changes some captions. */
import { jpegCoefficients } from "./jpeg_coefficients.js";

const BITS = 13, PASS1 = 2; // bits after the point of the constants, and of the values between the passes
const space = new Int32Array(64); // of the block in work

// A pass of the inverse transformation over 8 values `step` apart, from `from` on, to 8, 4 or 2 values in `to`.
function eight(from, at, step, to, out, newStep, shift) {
  const half = 1 << (shift - 1);
  let z2 = from[at + 2 * step], z3 = from[at + 6 * step], z1 = (z2 + z3) * 4433;
  let t2 = z1 - z3 * 15137, t3 = z1 + z2 * 6270;
  let t0 = (from[at] + from[at + 4 * step]) * 8192, t1 = (from[at] - from[at + 4 * step]) * 8192;
  const a = t0 + t3 + half, d = t0 - t3 + half, b = t1 + t2 + half, c = t1 - t2 + half;
  t0 = from[at + 7 * step];
  t1 = from[at + 5 * step];
  t2 = from[at + 3 * step];
  t3 = from[at + step];
  z1 = (t0 + t3) * -7373;
  z2 = (t1 + t2) * -20995;
  const z5 = (t0 + t2 + t1 + t3) * 9633;
  z3 = (t0 + t2) * -16069 + z5;
  const z4 = (t1 + t3) * -3196 + z5;
  t0 = t0 * 2446 + z1 + z3;
  t1 = t1 * 16819 + z2 + z4;
  t2 = t2 * 25172 + z2 + z3;
  t3 = t3 * 12299 + z1 + z4;
  to[out] = (a + t3) >> shift;
  to[out + 7 * newStep] = (a - t3) >> shift;
  to[out + newStep] = (b + t2) >> shift;
  to[out + 6 * newStep] = (b - t2) >> shift;
  to[out + 2 * newStep] = (c + t1) >> shift;
  to[out + 5 * newStep] = (c - t1) >> shift;
  to[out + 3 * newStep] = (d + t0) >> shift;
  to[out + 4 * newStep] = (d - t0) >> shift;
}

function four(from, at, step, to, out, newStep, shift) {
  const half = 1 << shift, t0 = from[at] * 16384, t2 = from[at + 2 * step] * 15137 - from[at + 6 * step] * 6270;
  const z1 = from[at + 7 * step], z2 = from[at + 5 * step], z3 = from[at + 3 * step], z4 = from[at + step];
  const inner = z4 * 8697 - z3 * 17799 + z2 * 11893 - z1 * 1730, outer = z4 * 20995 + z3 * 7373 - z2 * 4926 - z1 * 4176;
  to[out] = (t0 + t2 + outer + half) >> (shift + 1);
  to[out + 3 * newStep] = (t0 + t2 - outer + half) >> (shift + 1);
  to[out + newStep] = (t0 - t2 + inner + half) >> (shift + 1);
  to[out + 2 * newStep] = (t0 - t2 - inner + half) >> (shift + 1);
}

function two(from, at, step, to, out, newStep, shift) {
  const half = 2 << shift, even = from[at] * 32768 + half;
  const odd = from[at + step] * 29692 - from[at + 3 * step] * 10426 + from[at + 5 * step] * 6967 - from[at + 7 * step] * 5906;
  to[out] = (even + odd) >> (shift + 2);
  to[out + newStep] = (even - odd) >> (shift + 2);
}

const PASSES = { 8: eight, 4: four, 2: two };
const UNUSED = { 8: [], 4: [4], 2: [2, 4, 6] }; // columns whose values have the mean 0

// The values of a component, with `n` for the 8 of a block: { values, width, height } of whole blocks.
function plane({ coefficients, table, blocksAcross }, n) {
  const blocks = coefficients.length / 64, width = blocksAcross * n, height = (blocks / blocksAcross) * n;
  const values = new Uint8ClampedArray(width * height), block = new Int32Array(64), result = new Int32Array(n * n);
  const pass = PASSES[n], columns = [0, 1, 2, 3, 4, 5, 6, 7].filter((column) => !UNUSED[n]?.includes(column));
  for (let number = 0, from = 0; number < blocks; number++, from += 64) {
    let to = Math.floor(number / blocksAcross) * n * width + (number % blocksAcross) * n;
    if (n === 1) {
      values[to] = ((coefficients[from] * table[0] + 4) >> 3) + 128;
      continue;
    }
    for (const column of columns) {
      let varies = 0;
      for (let i = column + 8; i < 64; i += 8) varies |= coefficients[from + i];
      if (varies) {
        for (let i = column; i < 64; i += 8) block[i] = coefficients[from + i] * table[i];
        pass(block, column, 8, space, column, 8, BITS - PASS1);
      } else { // most columns of a photo: faster, and equal
        const value = (coefficients[from + column] * table[column]) << PASS1;
        for (let i = column, end = 8 * n; i < end; i += 8) space[i] = value;
      }
    }
    for (let row = 0; row < n; row++) pass(space, row * 8, 1, result, row * n, 1, BITS + PASS1 + 3);
    for (let row = 0, at = 0; row < n; row++, to += width) {
      for (let column = 0; column < n; column++, at++) values[to + column] = result[at] + 128;
    }
  }
  return { values, width, height };
}

// Twice as many values along an axis: by a triangle filter, or each value twice. `length` and `lines` are those of the
// picture along and across the axis, and the values of a plane are `step` and `across` apart.
function enlarged(values, { length, lines, step, across, newStep, newAcross }, triangle) {
  const result = new Uint8ClampedArray(2 * length * lines);
  for (let line = 0; line < lines; line++) {
    for (let i = 0, at = line * across, to = line * newAcross; i < length; i++, at += step, to += 2 * newStep) {
      const value = values[at], before = values[i ? at - step : at], after = values[i + 1 < length ? at + step : at];
      result[to] = triangle ? (3 * value + before + 1) >> 2 : value;
      result[to + newStep] = triangle ? (3 * value + after + 2) >> 2 : value;
    }
  }
  return result;
}

// The picture at 1 / factor of its size, RGBA: { pixels, width, height }. `sampling` is how many values luma has for one of
// chroma, across and down: 1 or 2. Throws an UnusualJpeg for a file that has to be left to the browser.
function reducedJpeg(bytes, factor, [across, down]) {
  const { width, height, components } = jpegCoefficients(bytes), n = 8 / factor;
  const columns = Math.ceil(width / factor), rows = Math.ceil(height / factor);
  const [luma, ...chroma] = components, y = plane(luma, n);
  const both = across === 2 && down === 2; // then chroma is reduced by half as much, which makes it as large as luma
  const [cb, cr] = chroma.map((component) => {
    const own = plane(component, both ? 2 * n : n);
    if (both || across * down === 1) return own;
    const length = across === 2 ? Math.ceil(columns / 2) : Math.ceil(rows / 2), lines = across === 2 ? rows : columns;
    const axis = across === 2 ? { step: 1, across: own.width, newStep: 1, newAcross: 2 * length }
      : { step: own.width, across: 1, newStep: lines, newAcross: 1 };
    return { values: enlarged(own.values, { length, lines, ...axis }, n > 1), width: across === 2 ? 2 * length : lines };
  });
  const pixels = new Uint8ClampedArray(columns * rows * 4);
  for (let row = 0, to = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, to += 4) {
      const grey = y.values[row * y.width + column];
      const blue = cb ? cb.values[row * cb.width + column] - 128 : 0, red = cr ? cr.values[row * cr.width + column] - 128 : 0;
      pixels[to] = grey + ((91881 * red + 32768) >> 16);
      pixels[to + 1] = grey + ((-22554 * blue - 46802 * red + 32768) >> 16);
      pixels[to + 2] = grey + ((116130 * blue + 32768) >> 16);
      pixels[to + 3] = 255;
    }
  }
  return { pixels, width: columns, height: rows };
}

export { reducedJpeg };
