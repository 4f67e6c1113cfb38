// What a viewer tells about the selected word: figures, each with a sentence that explains it.
import { focus, halfArea } from "./painting.js";
import { element } from "./stage.js";

const HABIT = 0.5; // a content word that keeps this share of its probability without the picture is marked

const percent = (share) => `${share < 0.0095 ? +(100 * share).toFixed(1) : Math.round(100 * share)}\u00a0%`;
const probability = (p) => (p >= 0.9995 ? "1.00" : p >= 0.01 ? p.toFixed(2) : p >= 0.0005 ? p.toFixed(3) : "< 0.001");

// The share of the word's probability that is left when the picture is blurred away.
const habit = (evidence) => Math.min(1, Math.exp(evidence.blurred - evidence.seen));
const isHabit = (word) => word.content !== false && Boolean(word.evidence) && habit(word.evidence) >= HABIT;
// How much of the word came from the picture: nothing if it is as likely without it, everything if it is 1,000 times as
// likely with it, on a scale of ratios.
const fromPicture = ({ seen, blurred }) => Math.min(1, Math.max(0, (seen - blurred) / Math.log(1000)));
const times = (evidence) => {
  const factor = Math.exp(evidence.seen - evidence.blurred);
  return `× ${factor < 10 ? factor.toFixed(1) : factor < 1000 ? Math.round(factor) : "1000 or more"}`;
};

const thirds = (names, position) => names[Math.min(2, Math.floor(3 * position))];

// Where most of a map is, in words.
function whereabouts(word, rows, cols) {
  if (halfArea(word.map) > 0.35) return "spread over the picture";
  const peak = word.map.indexOf(Math.max(...word.map));
  const down = thirds(["upper", "middle", "lower"], (Math.floor(peak / cols) + 0.5) / rows);
  const across = thirds(["left", "centre", "right"], ((peak % cols) + 0.5) / cols);
  return down === "middle" && across === "centre" ? "centre" : `${down} ${across}`;
}

// One sentence for screen readers.
function spoken(word, rows, cols) {
  const habitual = isHabit(word) ? ", from habit more than from the picture" : "";
  return `${word.word}, probability ${probability(word.probability)}, looked at: ${whereabouts(word, rows, cols)}${habitual}`;
}

function bar(share, kind) {
  const fill = element("b", { class: `cv-${kind}` });
  fill.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
  return element("i", { class: "cv-bar", "aria-hidden": "true" }, fill);
}

// A labelled figure. Pressing the label shows the explanation, pointing at it too.
function figure(name, value, share, kind, why) {
  const label = element("button", { type: "button", class: "cv-why", title: why, "aria-expanded": "false" }, name);
  const note = element("p", { class: "cv-note", hidden: true }, why);
  label.addEventListener("click", () => {
    note.hidden = !note.hidden;
    label.setAttribute("aria-expanded", String(!note.hidden));
  });
  const parts = share === null ? [] : [bar(share, kind)];
  return element("div", { class: "cv-figure" }, label, element("span", { class: "cv-value" }, value), ...parts, note);
}

function alternatives(word) {
  const rows = word.alternatives.slice(0, 5).map(([text, p]) =>
    element("li", { class: text === word.word ? "cv-chosen" : false },
      element("span", {}, text), element("span", { class: "cv-value" }, probability(p)), bar(p, "probability")));
  return element("div", { class: "cv-figure" },
    element("p", { class: "cv-heading" }, "What else it could have said here"), element("ol", { class: "cv-words" }, ...rows));
}

function evidenceFigures(word) {
  const { seen, blurred, correlation } = word.evidence, share = fromPicture(word.evidence);
  const both = element("div", { class: "cv-grounding", role: "img",
    "aria-label": `${percent(share)} from the picture, ${percent(1 - share)} from habit` },
    element("b", { class: "cv-picture" }), element("b", { class: "cv-habit" }));
  both.firstChild.style.flexGrow = share;
  both.lastChild.style.flexGrow = 1 - share;
  const figures = [
    figure("From the picture", times(word.evidence), null, "", `The picture makes the word ${times(word.evidence).slice(2)} times ` +
      `as likely: ${probability(Math.exp(seen))} with the picture, ${probability(Math.exp(blurred))} after the same words with the ` +
      "picture blurred away. Green is what the picture adds, full at 1,000 times; hatched is habit: what the words before suggest."),
    both,
  ];
  if (isHabit(word)) {
    figures.push(element("p", { class: "cv-warning" },
      `“${word.word}” comes from habit: the model would have said it without seeing the picture.`));
  }
  if (typeof correlation === "number") {
    figures.push(figure("Looked at = relied on?", correlation.toFixed(2), null, "", "Rank correlation between the cells " +
      "that the model looked at and the cells whose blurring makes the word less likely: 1 is the same order, 0 is no " +
      "relation. Where it is low, the map doesn't show what the word depended on."));
  }
  if (word.evidence.curves) figures.push(curves(word.evidence.curves, word.word));
  return figures;
}

const SVG = "http://www.w3.org/2000/svg";
function svgElement(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Probability of the word while the picture is deleted or inserted, most attended cells first, or in random order.
function curves({ shares, deletion, insertion, random_deletion, random_insertion }, word) {
  const chart = (title, attended, random) => {
    const width = 150, height = 84, svg = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${title}: attended cells first ${attended.map(probability).join(", ")}; random order ${random.map(probability).join(", ")}` });
    const top = Math.max(...attended, ...random, 1e-6);
    const points = (values) => values.map((value, i) =>
      `${(4 + shares[i] * (width - 8)).toFixed(1)},${(height - 6 - (value / top) * (height - 12)).toFixed(1)}`).join(" ");
    svg.append(svgElement("polyline", { class: "cv-random", points: points(random) }),
      svgElement("polyline", { class: "cv-attended", points: points(attended) }));
    return element("figure", {}, element("figcaption", {}, title), svg);
  };
  return element("details", { class: "cv-curves" }, element("summary", {}, "Deletion and insertion"),
    element("div", { class: "cv-charts" },
      chart("Blur the picture", deletion, random_deletion), chart("Uncover it", insertion, random_insertion)),
    element("p", { class: "cv-note" }, `Probability of “${word}” while more of the picture is blurred, or uncovered. ` +
      "Solid: the most attended cells first. Dashed: random order. If the attended cells matter, the solid line falls, or rises, earlier."));
}

// The panel of a word; `without` is called to caption again without the word.
function wordFacts(word, rows, cols, without) {
  const half = halfArea(word.map);
  const parts = [
    element("p", { class: "cv-title" }, element("strong", {}, word.word), ` ${whereabouts(word, rows, cols)}`),
    figure("Probability", probability(word.probability), word.probability, "probability",
      "How likely the model found this word, given the picture and the words before."),
  ];
  if (word.evidence) parts.push(...evidenceFigures(word));
  parts.push(figure("Concentration", `half on ${percent(half)}`, focus(word.map), "focus",
    `Half of the attention for this word is on ${percent(half)} of the picture, inside the white line. ` +
    "50\u00a0% is an even look at everything, an empty bar; one single cell is a full bar. Each halving adds the same length."));
  if (typeof word.gate === "number") {
    parts.push(figure("Gate", word.gate.toFixed(2), word.gate, "gate",
      "How much of what it looked at the model used for this word; the rest comes from the sentence so far."));
  }
  if (word.alternatives?.length) parts.push(alternatives(word));
  if (without) {
    const button = element("button", { type: "button", class: "cv-without" }, `Caption again without “${word.word}”`);
    button.addEventListener("click", without);
    parts.push(button);
  }
  return parts;
}

export { fromPicture, isHabit, percent, spoken, wordFacts };
