// Confidence of a caption, as in captioner/inference/confidence.py: the expected share of its content words that are right.

const LEAST = 1e-3, MOST = 1 - 1e-3; // limits of probabilities before they become log-odds
const FORMAT = 1;

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const sigmoid = (value) => 1 / (1 + Math.exp(-clamp(value, -50, 50)));

function logOdds(probability) {
  const p = clamp(probability, LEAST, MOST);
  return Math.log(p / (1 - p));
}

// 16-bit floats in base64.
function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return Float64Array.from(new Uint16Array(bytes.buffer), (bits) => {
    const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
}

// `values` is the content of confidence.json. The result computes the confidence of captions of one picture:
// of(pooled)(words), where `pooled` is the mean of the annotations and words have text, logProbability, gate and alpha.
function createConfidence(values) {
  if (values.format !== FORMAT) throw new Error("confidence.json was written by another version of captioner");
  const size = values.annotation_size, k = values.topics;
  const projection = unpacked(values.projection), offset = unpacked(values.offset), weights = unpacked(values.word_weights);
  const functionWords = new Set(values.function_words), entries = new Map(Object.entries(values.words));
  const { coefficients, intercept } = values;

  function statistics(text) {
    const [reliability, frequency, row = -1] = entries.get(text) ?? values.other;
    return { reliability, frequency, weights: row < 0 ? null : weights.subarray(row * k, (row + 1) * k) };
  }

  function topicsOf(pooled) {
    const topics = Float64Array.from(offset);
    for (let d = 0; d < size; d++) {
      for (let t = 0; t <= k; t++) topics[t] += pooled[d] * projection[d * (k + 1) + t];
    }
    return topics;
  }

  function features(word, at, length, topics) {
    const known = statistics(word.text), probability = clamp(Math.exp(word.logProbability), LEAST, MOST);
    let support = known.frequency;
    if (known.weights) {
      const fit = known.weights.reduce((sum, weight, t) => sum + weight * topics[t], 0);
      support = logOdds(1 / (1 + Math.exp(-known.frequency)) + fit);
    }
    return [logOdds(probability), probability, Math.log(probability), word.gate,
      entropy(word.alpha) / Math.log(Math.max(2, word.alpha.length)), at / length, length,
      known.reliability, support, support - known.frequency];
  }

  return (pooled) => {
    const topics = topicsOf(pooled), photo = sigmoid(topics[k]);
    return (words) => {
      const right = words.flatMap((word, at) => (functionWords.has(word.text) ? []
        : [sigmoid(features(word, at, words.length, topics).reduce((sum, value, i) => sum + value * coefficients[i], intercept))]));
      return right.length ? (photo * right.reduce((sum, value) => sum + value, 0)) / right.length : 0;
    };
  };
}

// Of an attention map, in nats.
const entropy = (alpha) => -alpha.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0);

// The mean over the cells of annotations (1, cells, size).
function pooledAnnotations(annotations) {
  const [, cells, size] = annotations.dims, means = new Float64Array(size);
  for (let i = 0; i < annotations.data.length; i++) means[i % size] += annotations.data[i] / cells;
  return means;
}

export { createConfidence, pooledAnnotations };
