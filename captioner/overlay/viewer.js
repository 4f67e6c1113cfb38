/* The viewer: a picture, its caption, and for every word where the model looked. A plain ES module without a build step.
   It needs viewer.css, and painting.js, stage.js, style_controls.js and word_facts.js beside it. It loads nothing else.

     import { createViewer } from "./viewer.js";
     const viewer = createViewer(element, {
       picture,             // an address, an <img>, a <canvas> or an ImageBitmap
       captions: [{         // the best caption first; the others can be chosen from a list
         rows, cols,        // the grid
         score, confidence, // optional numbers
         words: [{
           word, probability,
           map,             // attention of the rows x cols cells, row by row, in any unit
           gate, cell: [row, col], content,    // optional; content is false for words such as "of"
           alternatives: [[word, probability], ...],              // optional: the likeliest words at this position
           evidence: { map, seen, blurred, correlation, curves }, // optional: captioner/evidence explains the numbers
         }],
       }],
       style, grid, perWord, opacity,   // optional: as in Style of captioner/overlay/painting.py
       top,                 // optional: the top of the scale of attention, where several viewers share one
       controls,            // optional: false leaves out the controls below the picture
       keys,                // optional: the element whose arrow keys move through the sentence; default: the viewer
       recaption,           // optional: async ({ cells: [[row, col], ...], without: [word, ...] }) => captions
       onselect(index),     // optional: called when another word is shown; -1 is the picture alone
       onstyle(style),      // optional: called when the user changes the style
     });
     viewer.ready           // a promise: the picture is decoded and the first map is drawn
     viewer.select(index)   // shows a word; -1 shows the picture alone
     viewer.selected        // the index of the word
     viewer.words           // the words of the caption that is shown
     viewer.play(), viewer.stop()
     viewer.setStyle({ style, grid, perWord, opacity, top })
     viewer.setCaptions(captions)
     viewer.destroy()

   captioner.overlay.view_of(caption) makes an entry of `captions` in Python. */
import { focus } from "./painting.js";
import { createStage, element } from "./stage.js";
import { createStyleControls } from "./style_controls.js";
import { fromPicture, isHabit, percent, spoken, wordFacts } from "./word_facts.js";

const LEAST_TOP = 4, LEAST_TOP_RELIED = 1; // lowest tops of the two scales: flat maps look flat
const GUIDE = "Point at a word, tap it, or use the arrow keys ← → to see where the model looked for it.";
const PAUSE = 900, SLOW_PAUSE = 1600; // milliseconds per word while playing

// How concentrated the map of a word is, times how much the word owes to the picture. A viewer opens with the highest.
function visualness(word) {
  if (word.content === false) return -1;
  return focus(word.map) * (word.evidence ? fromPicture(word.evidence) : word.gate ?? 0.5);
}

const total = (map) => map.reduce((sum, value) => sum + value, 0) || 1;
const densities = (word) => word.map.map((value) => (value * word.map.length) / total(word.map));

function createViewer(root, options) {
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  let style = { style: "spotlight", grid: false, perWord: false, opacity: 0.85, top: options.top,
    ...Object.fromEntries(["style", "grid", "perWord", "opacity"].filter((k) => options[k] !== undefined).map((k) => [k, options[k]])) };
  let captions = options.captions, original = null, current = 0;
  let selected = -1, hovered = null, timer = 0, layer = "looked", buttons = [];
  let erasing = false;
  const erased = new Set(), unwanted = new Set();
  const caption = () => captions[current];
  const hasEvidence = () => caption().words.some((word) => word.evidence?.map);
  const shown = () => (hovered === null ? selected : hovered);

  const label = `The picture: ${captions[0].words.map((word) => word.word).join(" ") || "no words"}`;
  const stage = createStage(options.picture, label), second = createStage(stage.image.src, label);
  second.element.tabIndex = -1;
  const sentence = element("div", { class: "cv-sentence", role: "toolbar", "aria-label": "Words of the caption" });
  const facts = element("div", { class: "cv-facts" });
  const guide = element("p", { class: "cv-guide" }, GUIDE);
  const live = element("div", { class: "cv-hidden", "aria-live": "polite" });
  const others = element("div", { class: "cv-others" });
  const controls = element("div", { class: "cv-controls" });
  const layers = element("div", { class: "cv-layers", role: "group", "aria-label": "What the picture shows" });
  const captionsOf = { looked: "looked at", relied: "relied on" };
  const stages = element("div", { class: "cv-stages" },
    element("figure", {}, stage.element, element("figcaption", {})), element("figure", { hidden: true }, second.element, element("figcaption", {})));
  root.classList.add("cv");
  root.replaceChildren(sentence, guide, layers, element("div", { class: "cv-main" }, stages, facts), controls, others, live);

  function map(word, kind) {
    const { rows, cols, words } = caption();
    if (kind === "relied") {
      if (!word.evidence?.map) return null;
      const top = style.perWord ? Math.max(...word.evidence.map, 1e-6)
        : Math.max(LEAST_TOP_RELIED, ...words.flatMap((other) => other.evidence?.map ?? []));
      return { values: word.evidence.map, rows, cols, top, cell: null };
    }
    const values = densities(word);
    const top = style.perWord ? Math.max(...values) : style.top ?? Math.max(LEAST_TOP, ...words.flatMap(densities));
    return { values, rows, cols, top, cell: word.cell };
  }

  function draw() {
    const word = caption().words[shown()], both = layer === "both" && hasEvidence();
    const first = layer === "relied" && hasEvidence() ? "relied" : "looked";
    stage.show(word ? map(word, first) : null, style);
    second.element.parentElement.hidden = !both;
    if (both) second.show(word ? map(word, "relied") : null, style);
    stages.classList.toggle("cv-both", both);
    const missing = word && (both || first === "relied") && !word.evidence?.map;
    stages.querySelectorAll("figcaption").forEach((text, i) => {
      const kind = i ? "relied" : first;
      text.textContent = !word || !hasEvidence() ? "" : missing && kind === "relied" ? "not measured for this word" : captionsOf[kind];
    });
    buttons.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === shown()));
      button.tabIndex = i === Math.max(selected, 0) ? 0 : -1;
    });
    facts.replaceChildren(...(word ? wordFacts(word, caption().rows, caption().cols, options.recaption && (() => without(word))) : []));
    styleControls.drawLegend(style, (word && map(word, first)?.top) ?? LEAST_TOP, first);
  }

  function select(index, { focus: takeFocus = false, quiet = false } = {}) {
    selected = Math.max(-1, Math.min(index, caption().words.length - 1));
    hovered = null;
    leaveCell();
    draw();
    if (takeFocus) buttons[selected]?.focus();
    const word = caption().words[selected];
    live.textContent = timer ? "" : word ? spoken(word, caption().rows, caption().cols) : "the picture";
    if (!quiet) options.onselect?.(selected);
  }

  function hover(index) {
    hovered = index;
    draw();
    options.onselect?.(shown());
  }

  function build() {
    buttons = caption().words.map((word, i) => {
      const kind = word.content === false ? "cv-small" : isHabit(word) ? "cv-from-habit" : false;
      const text = element("span", { class: "cv-word" }, word.word);
      const fill = element("b"), rail = element("i", { class: "cv-under", "aria-hidden": "true" }, fill);
      fill.style.width = `${100 * (word.evidence ? fromPicture(word.evidence) : focus(word.map))}%`;
      rail.classList.toggle("cv-empty", hasEvidence() && !word.evidence);
      const button = element("button", { type: "button", class: kind, title: isHabit(word)
        ? "This word comes from habit more than from the picture."
        : `Bar: ${word.evidence ? "how much of the word came from the picture" : "how concentrated its map is"}.` }, text, rail);
      button.addEventListener("pointerenter", (event) => {
        if (event.pointerType !== "touch" && !timer) hover(i);
      });
      button.addEventListener("pointerleave", () => {
        if (hovered !== null) hover(null);
      });
      button.addEventListener("click", () => {
        stop();
        select(i, { focus: true });
      });
      return button;
    });
    sentence.replaceChildren(...buttons);
    if (!buttons.length) sentence.append("(no words)");
    if (typeof caption().confidence === "number") {
      sentence.append(element("span", { class: "cv-confidence", title:
        "Confidence of this caption: the expected share of its content words that are right." }, `${percent(caption().confidence)} sure`));
    }
    layers.hidden = !hasEvidence();
    listOthers();
  }

  function open() {
    build();
    const scores = caption().words.map(visualness);
    select(scores.length ? scores.indexOf(Math.max(...scores)) : -1, { quiet: true });
  }

  function listOthers() {
    others.hidden = captions.length < 2;
    others.replaceChildren(element("p", { class: "cv-heading" }, "Captions it considered"), element("ol", {},
      ...captions.map((other, k) => {
        const button = element("button", { type: "button", "aria-pressed": String(k === current) },
          element("span", {}, other.words.map((word) => word.word).join(" ") || "(no words)"),
          element("span", { class: "cv-value" }, typeof other.score === "number" ? other.score.toFixed(3) : ""));
        button.addEventListener("click", () => {
          stop();
          current = k;
          open();
          others.querySelectorAll("button")[k].focus();
        });
        return element("li", {}, button);
      })));
  }

  // Playing
  const playButton = element("button", { type: "button", class: "cv-play" });
  function showPlay() {
    playButton.textContent = timer ? "❚❚ Pause" : "▶ Play";
    playButton.setAttribute("aria-label", timer ? "Pause" : "Play the sentence");
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    showPlay();
  }
  function play() {
    if (timer || !caption().words.length) return;
    const step = () => {
      select(selected + 1);
      if (selected >= caption().words.length - 1) stop();
    };
    if (selected >= caption().words.length - 1) selected = -1;
    timer = setInterval(step, reducedMotion.matches ? SLOW_PAUSE : PAUSE);
    showPlay();
    step();
  }

  // The picture: which words looked at a cell
  let at = null; // the cell that the keyboard moves
  function showCell([row, col]) {
    at = [row, col];
    const { rows, cols, words } = caption(), values = words.map((word) => densities(word)[row * cols + col]);
    stage.point(rows, cols, at);
    buttons.forEach((button, i) => button.classList.toggle("cv-lit", values[i] >= 1));
    const most = words.map((word, i) => [values[i], word.word]).filter(([value]) => value >= 1).sort((a, b) => b[0] - a[0]);
    guide.textContent = most.length
      ? `Looked here for: ${most.slice(0, 4).map(([value, word]) => `${word} ${value.toFixed(1)}\u00a0×`).join(", ")} (1 × is an even look)`
      : "No word has more than average attention here.";
    return guide.textContent;
  }
  function leaveCell() {
    stage.point(1, 1, null);
    buttons.forEach((button) => button.classList.remove("cv-lit"));
    guide.textContent = erasing ? "Draw over the part to erase, then caption the picture again." : GUIDE;
  }
  function eraseAt(event) {
    const { rows, cols } = caption();
    erased.add(stage.cellAt(event, rows, cols).join(","));
    stage.cover(rows, cols, erased);
  }
  stage.element.addEventListener("pointermove", (event) => {
    const { rows, cols } = caption();
    if (erasing) { if (event.buttons) eraseAt(event); } else showCell(stage.cellAt(event, rows, cols));
  });
  stage.element.addEventListener("pointerdown", (event) => {
    const { rows, cols } = caption();
    if (!erasing) return showCell(stage.cellAt(event, rows, cols));
    event.preventDefault();
    stage.element.setPointerCapture(event.pointerId);
    return eraseAt(event);
  });
  stage.element.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") leaveCell();
  });
  stage.element.addEventListener("blur", leaveCell);
  stage.element.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const { rows, cols } = caption();
    if (event.key === "Escape") leaveCell();
    if (erasing && at && (event.key === " " || event.key === "Enter")) {
      event.preventDefault();
      erased.add(at.join(","));
      stage.cover(rows, cols, erased);
    }
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    const next = at ? [at[0] + move[0], at[1] + move[1]] : [Math.floor(rows / 2), Math.floor(cols / 2)];
    const told = showCell([Math.min(Math.max(next[0], 0), rows - 1), Math.min(Math.max(next[1], 0), cols - 1)]);
    live.textContent = `row ${at[0] + 1}, column ${at[1] + 1}. ${told}`;
  });

  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    const to = { ArrowRight: selected + 1, ArrowLeft: selected - 1, Home: 0, End: caption().words.length - 1, Escape: -1 }[event.key];
    if (to === undefined) return;
    if (event.key.startsWith("Arrow")) event.preventDefault();
    stop();
    select(to, { focus: sentence.contains(document.activeElement) });
  }
  const keys = options.keys ?? root;
  keys.addEventListener("keydown", onKey);

  // Erasing: a new caption for the picture without a part, or without a word
  let request = 0, pending = false; // the number of the last request: an answer to an earlier one is ignored
  let left = []; // the words that the shown caption was asked to leave out
  function cancel() {
    request++;
    pending = false;
  }
  async function again() {
    const number = ++request, cells = [...erased].map((key) => key.split(",").map(Number)), words = [...unwanted];
    pending = true;
    guide.textContent = "Captioning again …";
    showErasing();
    try {
      const answer = await options.recaption({ cells, without: words });
      if (number !== request) return;
      original ??= captions;
      captions = answer;
      left = words;
      current = 0;
      erasing = false;
      open();
      guide.textContent = `Without ${[cells.length ? "the erased part" : "", ...words].filter(Boolean).join(" and ")}, it says this.`;
    } catch (error) {
      if (number !== request) return;
      unwanted.clear();
      left.forEach((word) => unwanted.add(word));
      guide.textContent = `It could not be captioned again: ${error.message}`;
    }
    pending = false;
    showErasing();
  }
  function without(word) {
    unwanted.add(word.word);
    again();
  }
  function restore() {
    cancel();
    left = [];
    if (original) captions = original;
    original = null;
    current = 0;
    erasing = false;
    erased.clear();
    unwanted.clear();
    stage.cover(1, 1, erased);
    open();
    showErasing();
  }
  const eraseButton = element("button", { type: "button" }, "Erase a part"), againButton = element("button", { type: "button" }, "Caption again");
  const restoreButton = element("button", { type: "button" }, "Back to the whole picture");
  function showErasing() {
    eraseButton.setAttribute("aria-pressed", String(erasing));
    againButton.hidden = !erasing;
    restoreButton.hidden = !(original || erased.size || pending);
    stage.element.classList.toggle("cv-erasing", erasing);
  }
  eraseButton.addEventListener("click", () => {
    erasing = !erasing;
    leaveCell();
    showErasing();
  });
  againButton.addEventListener("click", () => (erased.size ? again() : undefined));
  restoreButton.addEventListener("click", restore);

  // Controls
  const styleControls = createStyleControls((changes) => {
    setStyle(changes);
    options.onstyle?.(changes);
  });
  function setStyle(changes) {
    style = { ...style, ...changes };
    styleControls.show(style);
    draw();
  }
  playButton.addEventListener("click", () => (timer ? stop() : play()));
  const step = (text, name, by) => {
    const button = element("button", { type: "button", "aria-label": name, class: by > 0 ? "cv-next" : "cv-back" }, text);
    button.addEventListener("click", () => {
      stop();
      select(selected + by);
    });
    return button;
  };
  for (const [kind, text, why] of [
    ["looked", "Looked at", "Where the model's attention was when it chose the word."],
    ["relied", "Relied on", "Which parts of the picture make the word less likely when they are blurred."],
    ["both", "Side by side", "Both maps."],
  ]) {
    const button = element("button", { type: "button", title: why, "aria-pressed": String(kind === layer) }, text);
    button.addEventListener("click", () => {
      layer = kind;
      [...layers.children].forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      draw();
    });
    layers.append(button);
  }
  controls.append(element("div", { class: "cv-steps" }, step("←", "Previous word", -1), playButton, step("→", "Next word", 1)),
    ...styleControls.elements);
  if (options.recaption) controls.append(element("div", { class: "cv-steps" }, eraseButton, againButton, restoreButton));
  if (options.controls === false) controls.hidden = true;

  showPlay();
  showErasing();
  setStyle({});
  open();
  const ready = Promise.all([stage.ready, second.ready]).then(() => {
    stages.style.setProperty("--cv-ratio", stage.image.naturalWidth / stage.image.naturalHeight);
    draw();
  });

  return {
    ready, select, play, stop, setStyle,
    get selected() { return selected; },
    get words() { return caption().words; },
    get captions() { return captions; },
    setCaptions(changed) {
      cancel();
      stop();
      captions = changed;
      original = null;
      current = 0;
      open();
    },
    destroy() {
      cancel();
      stop();
      keys.removeEventListener("keydown", onKey);
      root.replaceChildren();
    },
  };
}

export { createViewer, visualness };
