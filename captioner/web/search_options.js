/* The options of a search: their names, defaults and limits come from SearchOptions in Python, through captioner.json.
   JavaScript spells them in its own way: n_best is nBest. */

// A wrong option, as a sentence.
class OptionError extends Error {}

const NOT_HERE = ["sample", "temperature", "topK", "topP", "seed", "groups", "diversity"];
const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

// The model's own options, changed by the given ones. The beam is widened where nBest needs it, unless it is given.
function searchOptions(table, given = {}) {
  const known = Object.fromEntries(Object.entries(table).map(([name, entry]) => [camel(name), entry]));
  const defaults = Object.fromEntries(Object.entries(known).map(([name, entry]) => [name, entry.value]));
  const options = { ...defaults };
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    if (NOT_HERE.includes(name)) throw new OptionError(`${name} is not available in the browser.`);
    if (!(name in known)) throw new OptionError(`There is no search option ${name}. Options: ${Object.keys(known).filter((other) => !NOT_HERE.includes(other)).join(", ")}.`);
    options[name] = checked(name, value, known[name]);
  }
  if (given.beam === undefined) options.beam = Math.max(options.beam, options.nBest);
  if (options.nBest > options.beam) throw new OptionError(`nBest ${options.nBest} needs a beam of ${options.nBest} or more, not ${options.beam}.`);
  if (options.minLength > options.maxLength) throw new OptionError(`No caption has at least ${options.minLength} and at most ${options.maxLength} words.`);
  if (options.hardAttention === "sampled") throw new OptionError("hardAttention must be expected or argmax in the browser.");
  return options;
}

function checked(name, value, { value: usual, least, most }) {
  if (name === "forbidden") return words(name, value);
  if (name === "required") return (typeof value === "string" ? [value] : value).map((entry) => (typeof entry === "string" ? entry.split("|") : words(name, entry)));
  if (name === "hardAttention") {
    if (![null, "expected", "argmax"].includes(value)) throw new OptionError("hardAttention must be expected or argmax in the browser.");
    return value;
  }
  if (typeof usual === "boolean") {
    if (typeof value !== "boolean") throw new OptionError(`${name} must be true or false.`);
    return value;
  }
  const whole = !["lengthPower", "repeatPenalty"].includes(name);
  if (typeof value !== "number" || !Number.isFinite(value) || (whole && !Number.isInteger(value))) {
    throw new OptionError(`${name} must be a ${whole ? "whole " : ""}number.`);
  }
  if (least !== null && value < least) throw new OptionError(`${name} ${value} is too small; the least is ${least}.`);
  if (most !== null && value > most) throw new OptionError(`${name} ${value} is too large; the most is ${most}.`);
  return value;
}

function words(name, value) {
  const list = typeof value === "string" ? [value] : value;
  if (!Array.isArray(list) || list.some((word) => typeof word !== "string")) throw new OptionError(`${name} must be a word or a list of words.`);
  return list;
}

export { OptionError, searchOptions };
