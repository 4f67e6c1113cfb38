/* From the pixels of a picture to the square that a model sees, with the results of Pillow's
   `resize((size, size), BICUBIC, reducing_gap=3)`: the same filter, the same whole numbers, the same rounding.
   Pixels are RGBA, row by row, as in ImageData. */

const REDUCING_GAP = 3; // as in captioner/images/pixels.py
const PRECISION = 22; // bits of a weight after the point
const SUPPORT = 2; // of the bicubic filter

function bicubic(distance) {
  const x = Math.abs(distance), a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// For each of `size` new pixels: the first old pixel, how many, and their weights as whole numbers. `length` is the
// part of the `available` old pixels that is resampled; it need not be a whole number.
function filterWeights(available, length, size) {
  const scale = Math.fround(length) / size, widened = Math.max(scale, 1), support = SUPPORT * widened;
  const widest = 2 * Math.ceil(support) + 1;
  const first = new Int32Array(size), count = new Int32Array(size), weights = new Int32Array(size * widest);
  for (let i = 0; i < size; i++) {
    const center = (i + 0.5) * scale;
    first[i] = Math.max(0, Math.trunc(center - support + 0.5));
    count[i] = Math.min(available, Math.trunc(center + support + 0.5)) - first[i];
    const values = Array.from({ length: count[i] }, (_, k) => bicubic((k + first[i] - center + 0.5) / widened));
    const sum = values.reduce((total, value) => total + value, 0);
    values.forEach((value, k) => {
      const share = (sum ? value / sum : value) * 2 ** PRECISION;
      weights[i * widest + k] = Math.trunc(share + (share < 0 ? -0.5 : 0.5));
    });
  }
  return { first, count, weights, widest };
}

// Resamples along one axis: `steps` are the distances in the arrays between neighbours along it and across it.
function resampleAxis(pixels, filter, across, { oldStep, oldAcross, newStep, newAcross }) {
  const size = filter.first.length, result = new Uint8ClampedArray(size * across * 4);
  const half = 2 ** (PRECISION - 1);
  for (let line = 0; line < across; line++) {
    for (let i = 0; i < size; i++) {
      let red = half, green = half, blue = half;
      let at = line * oldAcross + filter.first[i] * oldStep;
      for (let k = i * filter.widest, end = k + filter.count[i]; k < end; k++, at += oldStep) {
        const weight = filter.weights[k];
        red += pixels[at] * weight;
        green += pixels[at + 1] * weight;
        blue += pixels[at + 2] * weight;
      }
      const to = line * newAcross + i * newStep;
      result[to] = red >> PRECISION;
      result[to + 1] = green >> PRECISION;
      result[to + 2] = blue >> PRECISION;
    }
  }
  return result;
}

// The picture with the mean of every block of `across` x `down` pixels as one pixel; blocks at the edges may be smaller.
function reduce(pixels, width, height, across, down) {
  const columns = Math.ceil(width / across), rows = Math.ceil(height / down);
  const result = new Uint8ClampedArray(columns * rows * 4);
  for (let row = 0; row < rows; row++) {
    const bottom = Math.min(height, (row + 1) * down);
    for (let column = 0; column < columns; column++) {
      const right = Math.min(width, (column + 1) * across), n = (bottom - row * down) * (right - column * across);
      let red = n >> 1, green = red, blue = red;
      for (let y = row * down; y < bottom; y++) {
        for (let at = (y * width + column * across) * 4, end = (y * width + right) * 4; at < end; at += 4) {
          red += pixels[at];
          green += pixels[at + 1];
          blue += pixels[at + 2];
        }
      }
      const to = (row * columns + column) * 4, share = Math.floor(2 ** 24 / n);
      result[to] = Math.floor((red * share) / 2 ** 24);
      result[to + 1] = Math.floor((green * share) / 2 ** 24);
      result[to + 2] = Math.floor((blue * share) / 2 ** 24);
      result[to + 3] = 255;
    }
  }
  return { pixels: result, width: columns, height: rows };
}

function horizontalPass({ pixels, width, height }, boxWidth, boxHeight, size) {
  if (boxWidth === size && width === size) return { pixels, width, height };
  const steps = { oldStep: 4, oldAcross: 4 * width, newStep: 4, newAcross: 4 * size };
  return { pixels: resampleAxis(pixels, filterWeights(width, boxWidth, size), height, steps), width: size, height };
}

function verticalPass({ pixels, width, height }, boxWidth, boxHeight, size) {
  if (boxHeight === size && height === size) return { pixels, width, height };
  const steps = { oldStep: 4 * width, oldAcross: 4, newStep: 4 * width, newAcross: 4 };
  return { pixels: resampleAxis(pixels, filterWeights(height, boxHeight, size), width, steps), width, height: size };
}

// The whole picture as RGB, (size, size, 3). Pillow 13 begins with the vertical pass where that is much less work;
// the order matters, because each pass rounds.
function squash(pixels, width, height, size) {
  let source = { pixels, width, height }, [boxWidth, boxHeight] = [width, height];
  if (width !== size || height !== size) {
    const across = Math.trunc(width / size / REDUCING_GAP) || 1, down = Math.trunc(height / size / REDUCING_GAP) || 1;
    if (across > 1 || down > 1) {
      source = reduce(pixels, width, height, across, down);
      [boxWidth, boxHeight] = [width / across, height / down];
    }
  }
  const passes = [horizontalPass, verticalPass];
  if (source.height > size && source.height - size > 2 * (source.width - size)) passes.reverse();
  for (const pass of passes) source = pass(source, boxWidth, boxHeight, size);
  const rgb = new Uint8Array(size * size * 3);
  for (let i = 0; i < size * size; i++) {
    rgb[3 * i] = source.pixels[4 * i];
    rgb[3 * i + 1] = source.pixels[4 * i + 1];
    rgb[3 * i + 2] = source.pixels[4 * i + 2];
  }
  return rgb;
}

export { reduce, squash };
