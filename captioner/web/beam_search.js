/* Beam search for one picture, with the results of captioner/inference/search/beam.py: an end token competes for the
   slots of the beam like any word; a hypothesis that ends keeps its slot; the search is over if no live hypothesis can
   outrank the n-th best finished one. With required words, there is one beam per number of satisfied constraints. */
import { END, START } from "./constraints.js";

// Finds the n best captions, best first: [{ score, ended, steps: [{ word, logProbability, alpha, gate, cell }] }]. The
// steps of a caption that ended include the end token. The list is empty only if no caption satisfies all constraints.
// With `topWords`, each step to a word has that many `likeliest` words at its position as [word, probability], whatever
// the constraints.
async function beamSearch(backend, annotations, options, constraints, { topWords = 0 } = {}) {
  const normalized = (total, length) => total / Math.max(length, 1) ** options.lengthPower;
  const finished = [], cut = [];
  let state = await backend.begin(annotations, options.hardAttention);
  let live = [{ sum: 0, words: [], met: constraints.required.map(() => false), last: null }];
  let free = options.beam; // slots that no finished caption keeps

  for (let time = 0; time <= options.maxLength; time++) {
    const step = await backend.step(state, live.map(({ words }) => words.at(-1) ?? START));
    const likeliest = step.scores.map((row) => topWords && largest(row, topWords).map((word) => [word, Math.exp(row[word])]));
    live.forEach((hypothesis, k) => constraints.mask(step.scores[k], hypothesis.words, hypothesis.met));
    const chosen = candidates(step.scores, live, options, constraints, time).filter(({ rank }) => rank < free);
    const next = [], ended = new Set();
    for (const { parent, word, score, total } of chosen) {
      const from = live[parent];
      const reached = { word, alpha: step.alphas[parent], gate: step.gates[parent], cell: step.cells?.[parent], before: from.last };
      if (word === END) {
        ended.add(parent);
        insert(finished, { score: normalized(total, time + 1), last: { ...reached, logProbability: score } });
        continue;
      }
      const logProbability = Math.fround(score + constraints.penaltyAfter(from.words, word));
      const last = { ...reached, logProbability, ...(topWords ? { likeliest: likeliest[parent] } : {}) };
      next.push({ parent, sum: total, words: [...from.words, word], met: constraints.meet(from.met, word), last });
    }
    if (!constraints.required.length) free -= ended.size;
    const over = !next.length || time === options.maxLength;
    if (over) {
      live.forEach(({ sum, met, last }, k) => {
        if (!ended.has(k) && !met.includes(false)) insert(cut, { score: normalized(sum, time), last });
      });
    }
    if (over || isDecided(next, finished, options)) break;
    state = backend.select(step.state, next.map(({ parent }) => parent));
    live = next;
  }
  return [...finished, ...cut].slice(0, options.nBest).map(({ score, last }) => ({ score, ended: last?.word === END, steps: path(last) }));
}

// Whether no live hypothesis can reach the n best any more, even if all its further words were certain.
function isDecided(live, finished, { nBest, maxLength, lengthPower }) {
  const bound = Math.max(...live.map(({ sum }) => sum)) / (maxLength + 1) ** lengthPower;
  return finished.length >= nBest && bound <= finished[nBest - 1].score;
}

// The best continuations, best first: { parent, word, score, total, rank }. With required words there are several lists.
function candidates(scores, live, options, constraints, time) {
  const count = constraints.required.length;
  if (!count) return best(scores, live, options.beam);
  const lists = [], metBefore = live.map(({ met }) => met.filter(Boolean).length);
  for (let level = 0; level <= count; level++) {
    if (level < count && constraints.wordsNeeded(level) >= options.maxLength - time) continue;
    const ofLevel = scores.map((row, k) => {
      const copy = metBefore[k] === level ? row.slice() : new Float32Array(row.length).fill(-Infinity);
      for (const word of constraints.wanted) {
        const after = constraints.meet(live[k].met, word).filter(Boolean).length;
        copy[word] = after === level ? row[word] : -Infinity;
      }
      return copy;
    });
    lists.push(...best(ofLevel, live, options.beam));
  }
  return lists;
}

function best(scores, live, width) {
  const all = scores.flatMap((row, parent) => largest(row, width)
    .map((word) => ({ parent, word, score: row[word], total: live[parent].sum + row[word] })));
  if (all.some(({ total }) => Number.isNaN(total))) throw new Error("the model gave a log-probability that is not a number");
  return all.sort((a, b) => b.total - a.total || 0).slice(0, width)
    .map((candidate, rank) => ({ ...candidate, rank })).filter(({ total }) => total > -Infinity);
}

// Indices of the k largest values, largest first. Of equal values the first one comes first.
function largest(row, k) {
  const indices = [];
  for (let i = 0; i < row.length; i++) {
    if (indices.length === k && !(row[i] > row[indices[k - 1]])) continue;
    let at = indices.length;
    while (at && row[i] > row[indices[at - 1]]) at--;
    indices.splice(at, 0, i);
    if (indices.length > k) indices.pop();
  }
  return indices;
}

// Inserts a caption into a list that is sorted by score, best first, after those of equal score.
function insert(captions, caption) {
  const at = captions.findIndex(({ score }) => score < caption.score);
  captions.splice(at < 0 ? captions.length : at, 0, caption);
}

function path(last) {
  const steps = [];
  for (let step = last; step; step = step.before) {
    const { before, ...values } = step;
    steps.unshift(values);
  }
  return steps;
}

export { beamSearch };
