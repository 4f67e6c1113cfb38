// Constraints on captions, as in captioner/inference/search/constraints.py: which words may come next, and which required
// words have occurred. Log-probabilities stay 32-bit floats, so that results are Python's.
import { OptionError } from "./search_options.js";

// Punctuation around a word that captioner/text/tokenizer.py drops. Two or more of "!" and "?" are a token of their own.
const AROUND = /^(?:['"`‘’“”«»;]|[-.,:](?!\d)|[!?](?![!?]))+|(?:['"`‘’“”«».,:;-]|(?<![!?])[!?](?![!?]))+$/g;
const [PAD, START, END, UNK] = [0, 1, 2, 3], SPECIALS = 4;

class Vocabulary {
  constructor({ words, recurring }) {
    this.words = words;
    this.recurring = new Set(recurring);
    this.index = new Map(words.map((word, number) => [word, number]));
  }

  // The number of a word that the user named; undefined if the model doesn't know it.
  number(word) {
    const spelled = word.trim().toLowerCase();
    const found = [spelled, spelled.replace(AROUND, ""), word].map((spelling) => this.index.get(spelling));
    return found.find((number) => number >= SPECIALS);
  }
}

function createConstraints(options, vocabulary) {
  const forbidden = new Set(options.forbidden.map((word) => vocabulary.number(word)).filter((number) => number !== undefined));
  const required = options.required.map((alternatives) => alternatives.map((word) => {
    const number = vocabulary.number(word);
    if (number === undefined) throw new OptionError(`The model doesn't know the word “${word}”.`);
    return number;
  }));
  options.required.forEach((alternatives, i) => {
    if (!alternatives.length) throw new OptionError("An empty list of required words cannot be satisfied.");
    if (required[i].every((number) => forbidden.has(number))) throw new OptionError(`${alternatives.join(" or ")} is both required and forbidden.`);
  });
  const never = [PAD, START, ...(options.allowUnknown ? [] : [UNK]), ...forbidden];
  const wanted = [...new Set(required.flat())];
  const gains = wanted.map((number) => required.filter((numbers) => numbers.includes(number)).length);
  const most = Math.max(1, ...gains); // requirements that one word may meet
  const wordsNeeded = (met) => Math.ceil((required.length - met) / most);
  if (wordsNeeded(0) > options.maxLength) throw new OptionError(`${required.length} required words do not fit into ${options.maxLength} words.`);

  const recurring = new Set([...vocabulary.recurring].map((word) => vocabulary.index.get(word)));
  const penalty = Math.fround(options.repeatPenalty);
  const penaltyOf = (word) => (recurring.has(word) ? 0 : penalty);

  return {
    required, wanted, wordsNeeded,
    // Sets words that must not come next to minus infinity in one hypothesis's scores, and takes the penalty from repeats.
    mask(scores, words, met) {
      for (const word of never) scores[word] = -Infinity;
      if (words.length < options.minLength || met.includes(false)) scores[END] = -Infinity;
      const n = options.noRepeat, tail = n ? words.slice(words.length - n + 1) : [];
      if (n && words.length >= n) {
        for (let at = 0; at + n <= words.length; at++) {
          if (tail.every((word, k) => words[at + k] === word)) scores[words[at + n - 1]] = -Infinity;
        }
      }
      for (const word of new Set(words)) scores[word] -= penaltyOf(word);
    },
    // The penalty that `mask` took from a word after these words.
    penaltyAfter: (words, word) => (words.includes(word) ? penaltyOf(word) : 0),
    meet: (met, word) => met.map((already, i) => already || required[i].includes(word)),
  };
}

export { END, START, Vocabulary, createConstraints };
