"use strict";
// Draws the attention maps of a page. All data is in the page itself; nothing is fetched.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  const colorMap = Uint8Array.from(data.colorMap.match(/../g), (pair) => parseInt(pair, 16));
  const [play, back, next, opacity, blocks, perWord, legend, ticks] = [
    "play", "back", "next", "opacity", "blocks", "per-word", "legend", "ticks",
  ].map((id) => document.getElementById(id));
  const live = document.getElementById("live");

  const tracks = data.tracks.map((track, i) => {
    const root = document.getElementById(`track-${i}`);
    const find = (name) => root.querySelector(name);
    return {
      ...track, root, sentenceIndex: 0, buttons: [], muted: null,
      stage: find(".stage"), image: find("img"), canvas: find("canvas"), mark: find(".mark.cell"),
      here: find(".mark.here"), sentence: find(".sentence"), facts: find(".facts"), others: document.getElementById(`others-${i}`),
    };
  });

  let selected = -1; // the column shown while no word is hovered; -1 is the picture without a map
  let hovered = null; // the column of the word under the pointer
  let timer = 0;

  const current = (track) => track.sentences[track.sentenceIndex];
  const shown = () => (hovered === null ? selected : hovered);
  const showsBest = () => tracks.every((track) => track.sentenceIndex === 0);
  const length = () =>
    showsBest() ? data.columns.length : Math.max(...tracks.map((track) => current(track).words.length));

  // Tracks share columns of words while each shows its best sentence.
  const wordAt = (t, column) => {
    if (column < 0) return -1;
    if (showsBest()) return column < data.columns.length ? data.columns[column][t] : -1;
    return column < current(tracks[t]).words.length ? column : -1;
  };
  const columnOf = (t, word) => (showsBest() ? data.columns.findIndex((column) => column[t] === word) : word);

  const density = (sentence, word, cell) => (word.alpha[cell] / data.unit) * sentence.rows * sentence.cols;
  const peak = (sentence, word) => Math.max(...word.alpha) / data.unit * sentence.rows * sentence.cols;
  const top = () =>
    Math.max(data.leastTop, ...tracks.flatMap((t) => current(t).words.map((word) => peak(current(t), word))));

  // The shares of the cells before and after each pixel: a smoothstep between the centres of two cells.
  function shares(cells, pixels) {
    const before = new Uint16Array(pixels), after = new Uint16Array(pixels), part = new Float32Array(pixels);
    for (let i = 0; i < pixels; i++) {
      const position = ((i + 0.5) * cells) / pixels;
      if (blocks.checked) {
        before[i] = after[i] = Math.min(Math.floor(position), cells - 1);
        continue;
      }
      const first = Math.floor(position - 0.5), t = position - 0.5 - first;
      before[i] = Math.max(first, 0);
      after[i] = Math.min(first + 1, cells - 1);
      part[i] = t * t * (3 - 2 * t);
    }
    return { before, after, part };
  }

  function mutedPixels(track) {
    if (track.muted) return track.muted;
    const { canvas, image } = track;
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const { data: rgba } = context.getImageData(0, 0, canvas.width, canvas.height);
    const grey = new Float32Array(canvas.width * canvas.height);
    for (let i = 0; i < grey.length; i++) {
      const luma = 0.299 * rgba[4 * i] + 0.587 * rgba[4 * i + 1] + 0.114 * rgba[4 * i + 2];
      grey[i] = 0.85 * luma + 21;
    }
    return (track.muted = grey);
  }

  function paint(track, word, high) {
    const sentence = current(track), { rows, cols } = sentence;
    const grey = mutedPixels(track), { width, height } = track.canvas;
    const context = track.canvas.getContext("2d");
    const out = context.createImageData(width, height), pixels = out.data;
    const across = shares(cols, width), down = shares(rows, height);
    const cover = Number(opacity.value) / 100;
    const scale = (rows * cols) / data.unit / (perWord.checked ? Math.max(peak(sentence, word), 1e-6) : high);
    for (let y = 0, i = 0; y < height; y++) {
      const upper = down.before[y] * cols, lower = down.after[y] * cols, v = down.part[y];
      for (let x = 0; x < width; x++, i++) {
        const left = across.before[x], right = across.after[x], u = across.part[x];
        const over = word.alpha[upper + left] * (1 - u) + word.alpha[upper + right] * u;
        const under = word.alpha[lower + left] * (1 - u) + word.alpha[lower + right] * u;
        const level = Math.min(255, (over * (1 - v) + under * v) * scale * 255) | 0;
        const share = cover * (0.6 + (0.4 * level) / 255), rest = (1 - share) * grey[i];
        pixels[4 * i] = share * colorMap[3 * level] + rest;
        pixels[4 * i + 1] = share * colorMap[3 * level + 1] + rest;
        pixels[4 * i + 2] = share * colorMap[3 * level + 2] + rest;
        pixels[4 * i + 3] = 255;
      }
    }
    context.putImageData(out, 0, 0);
  }

  function box(element, sentence, row, col) {
    element.style.left = `${(100 * col) / sentence.cols}%`;
    element.style.top = `${(100 * row) / sentence.rows}%`;
    element.style.width = `${100 / sentence.cols}%`;
    element.style.height = `${100 / sentence.rows}%`;
    element.hidden = false;
  }

  const percent = (part) => `${Math.round(100 * part)}\u00a0%`;
  const describe = (sentence, word) =>
    `probability ${word.p.toFixed(2)}, gate ${word.gate.toFixed(2)}, spread ${percent(word.spread)}, ` +
    `peak ${peak(sentence, word).toFixed(1)} times an even spread, ${word.where}`;

  function draw() {
    const column = shown(), high = top();
    tracks.forEach((track, t) => {
      const sentence = current(track), index = wordAt(t, column), word = sentence.words[index];
      track.buttons.forEach((button, i) => {
        button.setAttribute("aria-pressed", String(i === index));
        button.tabIndex = i === Math.max(wordAt(t, selected), 0) ? 0 : -1;
      });
      track.stage.classList.toggle("mapped", Boolean(word));
      track.mark.hidden = true;
      if (word) {
        paint(track, word, high);
        if (word.cell) box(track.mark, sentence, ...word.cell);
      }
      if (track.here.hidden) {
        track.facts.replaceChildren();
        if (word) {
          const strong = document.createElement("strong");
          strong.textContent = word.text;
          track.facts.append(strong, `: ${describe(sentence, word)}`);
        }
      }
    });
    drawLegend(high);
  }

  function drawLegend(high) {
    const context = legend.getContext("2d"), cover = Number(opacity.value) / 100;
    for (let x = 0; x < 256; x++) {
      const share = cover * (0.6 + (0.4 * x) / 255);
      const [r, g, b] = [0, 1, 2].map((i) => Math.round(share * colorMap[3 * x + i] + (1 - share) * 140));
      context.fillStyle = `rgb(${r},${g},${b})`;
      context.fillRect(x, 0, 1, 1);
    }
    const tick = (text, at) => {
      const span = document.createElement("span");
      span.textContent = text;
      span.style.left = `${100 * at}%`;
      return span;
    };
    const marks = [tick("0", 0)];
    if (perWord.checked) marks.push(tick("the word's peak", 1));
    else {
      if (high < 12) marks.push(tick("1", 1 / high));
      marks.push(tick(`${high.toFixed(1)}\u00a0× even`, 1));
    }
    ticks.replaceChildren(...marks);
  }

  function select(column, focus) {
    selected = Math.max(-1, Math.min(column, length() - 1));
    hovered = null;
    leaveCell();
    draw();
    if (focus !== undefined) {
      const index = wordAt(focus, selected);
      if (index >= 0) tracks[focus].buttons[index].focus();
    }
    const announcements = tracks.map((track, t) => {
      const word = current(track).words[wordAt(t, selected)];
      return word ? `${track.model ? track.model + ": " : ""}${word.text}, ${describe(current(track), word)}` : "";
    });
    live.textContent = timer ? "" : announcements.filter(Boolean).join("; ") || "the picture";
  }

  function showCell(track, row, col) {
    const sentence = current(track), high = top(), cell = row * sentence.cols + col;
    box(track.here, sentence, row, col);
    const densities = sentence.words.map((word, i) => [density(sentence, word, cell), word.text, i]);
    for (const [value, , i] of densities) {
      const strength = value < 1 ? 0 : Math.sqrt(Math.min(1, value / high));
      track.buttons[i].style.setProperty("--here", strength.toFixed(3));
      track.buttons[i].classList.toggle("lit", value >= 1);
    }
    const most = densities.filter(([value]) => value >= 1).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const list = most.map(([value, text]) => `${text} ${value.toFixed(1)}\u00a0×`).join(", ");
    track.facts.textContent = list ? `Looked here for: ${list}` : "No word has more than average attention here.";
    return track.facts.textContent;
  }

  function leaveCell() {
    for (const track of tracks) {
      track.here.hidden = true;
      for (const button of track.buttons) {
        button.style.removeProperty("--here");
        button.classList.remove("lit");
      }
    }
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶ Play";
    play.setAttribute("aria-label", "Play the sentence");
  }

  function start() {
    if (selected >= length() - 1) select(-1);
    play.textContent = "❚❚ Pause";
    play.setAttribute("aria-label", "Pause");
    const step = () => {
      select(selected + 1);
      if (selected >= length() - 1) stop();
    };
    timer = setInterval(step, reducedMotion.matches ? 1600 : 900);
    step();
  }

  function build(t) {
    const track = tracks[t], sentence = current(track);
    track.buttons = sentence.words.map((word, i) => {
      const button = document.createElement("button");
      button.type = "button";
      const text = document.createElement("span");
      text.className = "word";
      text.textContent = word.text;
      const bars = document.createElement("span");
      bars.className = "bars";
      bars.setAttribute("aria-hidden", "true");
      for (const [name, value] of [["gate", word.gate], ["spread", word.spread]]) {
        const rail = document.createElement("i"), bar = document.createElement("b");
        bar.className = name;
        bar.style.height = `${100 * Math.min(Math.max(value, 0), 1)}%`;
        rail.append(bar);
        bars.append(rail);
      }
      button.append(text, bars);
      button.title = `gate ${word.gate.toFixed(2)}, spread ${percent(word.spread)}`;
      button.addEventListener("pointerenter", (event) => {
        if (event.pointerType === "touch" || timer) return;
        hovered = columnOf(t, i);
        draw();
      });
      button.addEventListener("pointerleave", () => {
        if (hovered === null) return;
        hovered = null;
        draw();
      });
      button.addEventListener("click", () => {
        stop();
        select(columnOf(t, i), t);
      });
      return button;
    });
    track.sentence.replaceChildren(...track.buttons);
  }

  function listOthers(t) {
    const track = tracks[t];
    if (track.sentences.length < 2) return;
    const list = document.createElement("ol");
    track.sentences.forEach((sentence, k) => {
      const item = document.createElement("li"), button = document.createElement("button");
      const text = document.createElement("span"), score = document.createElement("span");
      button.type = "button";
      text.textContent = sentence.text;
      score.className = "score";
      score.textContent = sentence.score.toFixed(3);
      button.append(text, score);
      button.setAttribute("aria-pressed", String(k === 0));
      button.addEventListener("click", () => {
        stop();
        track.sentenceIndex = k;
        [...list.querySelectorAll("button")].forEach((b, j) => b.setAttribute("aria-pressed", String(j === k)));
        build(t);
        select(-1);
      });
      item.append(button);
      list.append(item);
    });
    track.others.append(list);
  }

  tracks.forEach((track, t) => {
    if (t > 0) track.image.src = tracks[0].image.src; // the file contains the picture only once
    track.stage.style.setProperty("--ratio", track.image.getAttribute("width") / track.image.getAttribute("height"));
    build(t);
    listOthers(t);
    const cellAt = (event) => {
      const area = track.stage.getBoundingClientRect(), { rows, cols } = current(track);
      const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
      const col = Math.floor(((event.clientX - area.left) / area.width) * cols);
      return [Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(col, 0), cols - 1)];
    };
    let pointed = null; // the cell [row, column] that the keyboard moves
    const point = (event) => {
      pointed = cellAt(event);
      showCell(track, ...pointed);
    };
    track.stage.addEventListener("pointermove", point);
    track.stage.addEventListener("pointerdown", point);
    const leave = () => {
      leaveCell();
      draw();
    };
    track.stage.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") leave();
    });
    track.stage.addEventListener("blur", leave);
    track.stage.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") leave();
      if (!move) return;
      event.preventDefault();
      event.stopPropagation();
      const { rows, cols } = current(track);
      pointed = pointed && !track.here.hidden
        ? [Math.min(Math.max(pointed[0] + move[0], 0), rows - 1), Math.min(Math.max(pointed[1] + move[1], 0), cols - 1)]
        : [Math.floor(rows / 2), Math.floor(cols / 2)];
      live.textContent = `row ${pointed[0] + 1}, column ${pointed[1] + 1}. ${showCell(track, ...pointed)}`;
    });
  });

  play.addEventListener("click", () => (timer ? stop() : start()));
  back.addEventListener("click", () => { stop(); select(selected - 1); });
  next.addEventListener("click", () => { stop(); select(selected + 1); });
  for (const control of [opacity, blocks, perWord]) control.addEventListener("input", draw);
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input")) return;
    const to = { ArrowRight: selected + 1, ArrowLeft: selected - 1, Home: 0, End: length() - 1, Escape: -1 }[event.key];
    if (to === undefined) return;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") event.preventDefault();
    stop();
    const t = tracks.findIndex((track) => track.sentence.contains(document.activeElement));
    select(to, t < 0 ? undefined : t);
  });

  document.getElementById("controls").hidden = false;
  // page.html#3 opens at the third word, so that a link can point to it.
  const linked = () => select((Number(location.hash.slice(1)) || 0) - 1);
  addEventListener("hashchange", linked);
  Promise.all(tracks.map((track) => track.image.decode())).then(linked, linked);
})();
