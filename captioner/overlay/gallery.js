// The gallery: search, a filter by word that shows the word's map on the thumbnails, and sorting. Nothing is fetched.
import { lightAt, project } from "./painting.js";

const cards = JSON.parse(document.getElementById("data").textContent);
const list = document.getElementById("cards"), query = document.getElementById("query"), order = document.getElementById("order");
const count = document.getElementById("count"), words = document.getElementById("words");
[...list.children].forEach((element, i) => Object.assign(cards[i], { element, number: i, search: element.textContent.toLowerCase() }));
for (const frame of list.querySelectorAll(".frame")) {
  const image = frame.querySelector("img");
  frame.style.setProperty("--ratio", image.getAttribute("width") / image.getAttribute("height"));
}

// A dark layer over the thumbnail, transparent where the model looked. The thumbnail itself is a file, which a page
// that was opened from a folder may show but not read.
function shade({ rows, cols }, map) {
  const values = Array.from(atob(map), (letter) => letter.charCodeAt(0) / 255), scale = 10;
  const canvas = document.createElement("canvas"), width = (canvas.width = cols * scale), height = (canvas.height = rows * scale);
  const image = new ImageData(width, height), field = project(values, rows, cols, width, height, false);
  field.forEach((value, i) => {
    image.data.set([18, 20, 24, Math.round(215 * (1 - lightAt(value)))], 4 * i);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function show(card, word) {
  const frame = card.element.querySelector(".frame"), link = card.element.querySelector("a.picture");
  frame.querySelector("canvas")?.remove();
  const entry = card.words.find(([text]) => text === word);
  if (entry) frame.append(shade(card, entry[2]));
  if (link) link.href = link.getAttribute("href").split("#")[0] + (entry ? `#${entry[1] + 1}` : "");
}

function filter() {
  const wanted = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  let matches = 0;
  for (const card of cards) {
    // A word that some caption has is searched as a whole word; anything else as a part of captions and names.
    const has = (text) => (known.has(text) ? card.words.some(([word]) => word === text) : card.search.includes(text));
    card.element.hidden = !wanted.every(has);
    if (!card.element.hidden) matches++;
    show(card, wanted.find((text) => card.words.some(([word]) => word === text)));
  }
  count.textContent = wanted.length ? `${matches} of ${cards.length}` : "";
}

const compare = {
  given: (a, b) => a.number - b.number,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  least: (a, b) => (a.confidence ?? 2) - (b.confidence ?? 2),
  most: (a, b) => (b.confidence ?? -1) - (a.confidence ?? -1),
};

const known = new Map(); // word: number of pictures
for (const card of cards) for (const word of new Set(card.words.map(([text]) => text))) known.set(word, (known.get(word) ?? 0) + 1);
const frequent = [...known].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, 300);
words.replaceChildren(...frequent.map(([word, number]) => Object.assign(document.createElement("option"), { value: word, label: `${word} (${number})` })));
for (const option of order.querySelectorAll("option[data-confidence]")) option.hidden = option.disabled = !cards.some((card) => card.confidence !== null);
document.getElementById("tools").hidden = cards.length < 2;
query.addEventListener("input", filter);
order.addEventListener("change", () => list.append(...[...cards].sort(compare[order.value]).map((card) => card.element)));
// index.html#word opens with the filter set.
const linked = () => {
  query.value = decodeURIComponent(location.hash.slice(1));
  filter();
};
addEventListener("hashchange", linked);
linked();
