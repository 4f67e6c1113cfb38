// Readable sentences from a caption's tokens, as captioner/text/sentences.py makes them: a capital, a full stop, joined
// words. The tokenizer leaves out punctuation, so only brackets, signs and the parts of contractions need a rule.

const SPELLED = { "-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}", i: "I" };
const JOINS_WORD_BEFORE = new Set(["'s", "'m", "'d", "'re", "'ve", "'ll", "n't", "'"]);
const JOINS_BEFORE = new Set([")", "]", "}", ">", "%", ";", ":", ",", "!", "?"]);
const JOINS_AFTER = new Set(["(", "[", "{", "<", "#", "$"]);
const CONTRACTIONS = new Set(["can not", "d 'ye", "gim me", "gon na", "got ta", "lem me", "more 'n", "wan na", "'t is", "'t was"]);

function isJoined(left, right) {
  if (JOINS_BEFORE.has(right) || JOINS_AFTER.has(left)) return true;
  if (JOINS_WORD_BEFORE.has(right)) return !left.endsWith("'");
  return CONTRACTIONS.has(`${left} ${right}`);
}

// "a dog does n't move" becomes "A dog doesn't move.".
function sentence(tokens) {
  const words = tokens.map((token) => SPELLED[token] ?? token);
  let text = words.map((word, i) => (i && !isJoined(words[i - 1], word) ? ` ${word}` : word)).join("");
  if (!text) return "";
  if (!text.startsWith("<")) text = text.replace(/^([^\p{L}\p{N}_]*)(\p{L})/u, (_, before, letter) => before + letter.toUpperCase());
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

export { sentence };
