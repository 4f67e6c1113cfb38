"use strict";
// The review page: shows captions, lets a person edit and approve them, and saves the result as a file.
(() => {
  const PAGE = 60; // photos shown at a time
  const $ = (id) => document.getElementById(id);
  const entries = JSON.parse($("captions").textContent).map((entry) => ({ ...entry, original: entry.sentence, approved: false }));
  const hasConfidence = entries.some((entry) => entry.confidence !== null);
  const steps = []; // for undo: lists of [entry, field, old value]
  let shown = entries, page = 0, current = 0, dirty = false;

  // Work is kept in the browser until it is saved. Where the browser has no storage, the page works without it.
  const key = `captioner-review-${entries.length}-${hash(entries.map((entry) => entry.image + entry.original).join("\n"))}`;
  function hash(text) {
    let value = 0;
    for (let i = 0; i < text.length; i++) value = (Math.imul(value, 31) + text.charCodeAt(i)) | 0;
    return value;
  }
  function remember() {
    const changed = entries.flatMap((entry, i) => entry.approved || isEdited(entry) ? [[i, entry.sentence, entry.approved]] : []);
    try { localStorage.setItem(key, JSON.stringify(changed)); } catch { /* no storage */ }
  }
  try {
    for (const [i, sentence, approved] of JSON.parse(localStorage.getItem(key) ?? "[]")) Object.assign(entries[i], { sentence, approved });
  } catch { /* no storage */ }

  function isEdited(entry) { return entry.sentence !== entry.original; }

  function change(changes) { // [entry, field, new value] each: one step for undo
    const effective = changes.filter(([entry, field, value]) => entry[field] !== value);
    if (!effective.length) return;
    steps.push(effective.map(([entry, field]) => [entry, field, entry[field]]));
    for (const [entry, field, value] of effective) entry[field] = value;
    changed(effective.map(([entry]) => entry));
  }
  function undo() {
    const step = steps.pop();
    if (!step) return;
    for (const [entry, field, value] of step) entry[field] = value;
    const at = shown.indexOf(step[0][0]);
    if (at >= 0) current = at;
    changed(step.map(([entry]) => entry));
    show();
  }
  function changed(list) {
    dirty = true;
    remember();
    for (const entry of list) if (entry.card) fill(entry);
    status();
  }

  function status() {
    const approved = entries.filter((entry) => entry.approved).length, edited = entries.filter(isEdited).length;
    const part = shown.length === entries.length ? "" : `, ${shown.length} shown`;
    $("progress").textContent = `${approved} approved, ${edited} edited${part}`;
    $("undo").disabled = !steps.length;
  }

  function filter() {
    const words = $("query").value.toLowerCase().split(/\s+/).filter(Boolean);
    const limit = $("limit").value / 100, state = $("state").value;
    $("limit-value").textContent = `${$("limit").value} %`;
    shown = entries.filter((entry) => {
      const text = `${entry.sentence} ${entry.image}`.toLowerCase();
      const inState = { all: true, open: !entry.approved, approved: entry.approved, edited: isEdited(entry), unsure: entry.unsure }[state];
      return inState && (limit >= 1 || (entry.confidence ?? 1) <= limit) && words.every((word) => text.includes(word));
    });
    if ($("order").value === "low") shown = [...shown].sort((a, b) => (a.confidence ?? 1) - (b.confidence ?? 1));
    current = 0;
    show();
    status();
  }

  function show() {
    page = Math.floor(current / PAGE);
    for (const entry of entries) entry.card = null;
    const part = shown.slice(page * PAGE, (page + 1) * PAGE);
    $("cards").replaceChildren(...part.map(build));
    $("cards").start = page * PAGE + 1;
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    $("pages").hidden = pages === 1;
    $("page").textContent = `Page ${page + 1} of ${pages}`;
    $("previous").disabled = page === 0;
    $("next").disabled = page === pages - 1;
    $("empty").hidden = shown.length > 0;
    mark(false);
  }

  function element(name, values, ...children) {
    const made = Object.assign(document.createElement(name), values);
    made.append(...children);
    return made;
  }

  function build(entry) {
    const image = element("img", { src: entry.thumbnail, width: entry.width, height: entry.height, alt: entry.original, loading: "lazy" });
    const text = element("textarea", { rows: 2, spellcheck: true });
    text.setAttribute("aria-label", `Caption of ${entry.image}`);
    text.addEventListener("focus", () => { current = shown.indexOf(entry); mark(false); });
    text.addEventListener("blur", () => keep(entry, text.value));
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); text.blur(); entry.card?.focus(); }
      if (event.key === "Escape") { event.stopPropagation(); text.value = entry.sentence; text.blur(); entry.card?.focus(); }
    });
    const approve = element("button", { type: "button" });
    approve.addEventListener("click", () => { current = shown.indexOf(entry); change([[entry, "approved", !entry.approved]]); mark(false); });
    const facts = element("p", { className: "facts" }, element("span", { className: "name", textContent: entry.image }));
    if (entry.confidence !== null) {
      const low = entry.unsure || entry.confidence < 0.5;
      facts.append(element("span", { className: low ? "low" : "", title: "Confidence of this caption: the expected share of its content words that are right.", textContent: `${Math.round(100 * entry.confidence)} %${entry.unsure ? " ?" : ""}` }));
    }
    facts.append(approve);
    const about = element("div", { className: "about" }, text);
    if (entry.alternatives.length) {
      const choices = entry.alternatives.map((other, i) => {
        const choice = element("button", { type: "button", textContent: `${i + 1}: ${other}` });
        choice.addEventListener("click", () => { current = shown.indexOf(entry); change([[entry, "sentence", other]]); mark(false); });
        return choice;
      });
      about.append(element("div", { className: "choices" }, ...choices));
    }
    about.append(facts);
    entry.card = element("li", { className: "card", tabIndex: -1 }, image, about);
    entry.card.addEventListener("click", (event) => {
      current = shown.indexOf(entry);
      mark(false);
      if (event.target === image) entry.card.focus();
    });
    entry.parts = { text, approve };
    fill(entry);
    return entry.card;
  }

  function fill(entry) {
    const { text, approve } = entry.parts;
    if (document.activeElement !== text || text.value !== entry.sentence) text.value = entry.sentence;
    entry.card.classList.toggle("edited", isEdited(entry));
    entry.card.classList.toggle("approved", entry.approved);
    approve.textContent = entry.approved ? "Approved" : "Approve";
    approve.setAttribute("aria-pressed", String(entry.approved));
  }

  function keep(entry, value) { // captions are one line
    const sentence = value.replace(/\s+/g, " ").trim();
    if (sentence) change([[entry, "sentence", sentence]]);
    if (entry.card) entry.parts.text.value = entry.sentence;
  }

  function mark(focus = true) {
    for (const card of document.querySelectorAll(".card.current")) { card.classList.remove("current"); card.tabIndex = -1; }
    const card = shown[current]?.card;
    if (!card) return;
    card.classList.add("current");
    card.tabIndex = 0;
    if (focus) { card.focus({ preventScroll: true }); card.scrollIntoView({ block: "nearest" }); }
  }

  function move(by) {
    if (!shown.length) return;
    current = Math.min(shown.length - 1, Math.max(0, current + by));
    if (Math.floor(current / PAGE) !== page) show();
    mark();
  }

  function across() { // how many cards are in a row
    const cards = [...$("cards").children];
    return Math.max(1, cards.findIndex((card) => card.offsetTop !== cards[0].offsetTop));
  }

  function save() {
    const list = entries.filter((entry) => $("which").value === "all" || entry.approved);
    const rows = list.map((entry) => ({
      image: entry.image, caption: entry.caption, sentence: entry.sentence, confidence: entry.confidence, score: entry.score,
      log_probability: entry.log_probability, backend: entry.backend, approved: entry.approved, edited: isEdited(entry),
    }));
    const cell = (value) => /[",\n\r]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? "");
    const names = ["image", "caption", "sentence", "confidence", "score", "log_probability", "backend", "approved", "edited"];
    const csv = $("format").value === "csv";
    const lines = csv ? [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))] : rows.map((row) => JSON.stringify(row));
    const blob = new Blob([lines.map((line) => `${line}\n`).join("")], { type: csv ? "text/csv" : "application/jsonl" });
    const link = element("a", { href: URL.createObjectURL(blob), download: csv ? "captions.csv" : "captions.jsonl" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    dirty = false;
    $("progress").textContent = `Saved ${rows.length} captions to ${link.download}`;
  }

  // Find and replace, in the photos that are shown.
  function replacements() {
    const find = $("find").value;
    if (!find) return [];
    const literal = find.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const pattern = $("whole").checked ? `(?<![\\p{L}\\p{N}_])${literal}(?![\\p{L}\\p{N}_])` : literal;
    const expression = new RegExp(pattern, $("case").checked ? "gu" : "giu");
    return shown.flatMap((entry) => {
      const after = entry.sentence.replace(expression, (match) => sameCase(match, $("by").value)).replace(/\s+/g, " ").trim();
      return after && after !== entry.sentence ? [[entry, after]] : [];
    });
  }
  function sameCase(match, by) { // a word at the start of a sentence keeps its capital
    const capital = match[0] !== match[0].toLowerCase() && !$("case").checked;
    return capital && by ? by[0].toUpperCase() + by.slice(1) : by;
  }
  function preview() {
    const list = replacements();
    $("matches").textContent = $("find").value ? `${list.length} of ${shown.length} captions change` : "";
    $("preview").replaceChildren(...list.slice(0, 50).map(([entry, after]) =>
      element("li", {}, element("del", { textContent: entry.sentence }), " ", element("ins", { textContent: after }))));
    $("apply").disabled = !list.length;
    $("apply").textContent = list.length ? `Replace in ${list.length}` : "Replace";
  }
  for (const id of ["find", "by", "whole", "case"]) $(id).addEventListener("input", preview);
  $("replace").addEventListener("close", () => {
    if ($("replace").returnValue === "apply") change(replacements().map(([entry, after]) => [entry, "sentence", after]));
    mark();
  });
  $("find").form.addEventListener("keydown", (event) => { // Enter in a field replaces, and does not cancel
    if (event.key === "Enter" && event.target.tagName === "INPUT") {
      event.preventDefault();
      if (!$("apply").disabled) $("replace").close("apply");
    }
  });
  function openReplace() {
    $("replace").returnValue = "";
    preview();
    $("replace").showModal();
    $("find").select();
  }

  $("limit-label").hidden = !hasConfidence;
  $("order").parentElement.hidden = !hasConfidence;
  for (const id of ["query", "limit", "state", "order"]) for (const kind of ["input", "change"]) $(id).addEventListener(kind, filter);
  for (const control of document.querySelectorAll(".bar select, .bar input[type=range]")) {
    // After a choice with the mouse, keys are for the photos again.
    let pointed = false;
    control.addEventListener("pointerdown", () => { pointed = true; });
    control.addEventListener("keydown", () => { pointed = false; });
    control.addEventListener("change", () => { if (pointed) mark(); });
  }
  $("undo").addEventListener("click", undo);
  $("save").addEventListener("click", save);
  $("approve-all").addEventListener("click", () => { change(shown.map((entry) => [entry, "approved", true])); mark(); });
  $("replace-open").addEventListener("click", openReplace);
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("help").addEventListener("close", () => mark());
  $("previous").addEventListener("click", () => { current = (page - 1) * PAGE; show(); mark(); });
  $("next").addEventListener("click", () => { current = (page + 1) * PAGE; show(); mark(); });
  addEventListener("beforeunload", (event) => { if (dirty) event.preventDefault(); });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (["Escape", "Enter"].includes(event.key) && event.target.closest?.(".bar input, .bar select")) { mark(); return; }
    if (typing || event.altKey || event.metaKey) return;
    if (event.ctrlKey) {
      if (event.key === "z") { event.preventDefault(); undo(); }
      return;
    }
    if (event.target.tagName === "BUTTON" && ["Enter", " "].includes(event.key)) return;
    const entry = shown[current];
    const actions = {
      j: () => move(1), ArrowRight: () => move(1), k: () => move(-1), ArrowLeft: () => move(-1),
      ArrowDown: () => move(across()), ArrowUp: () => move(-across()), Home: () => move(-shown.length), End: () => move(shown.length),
      a: () => approveNext(entry), " ": () => approveNext(entry),
      Enter: () => { if (entry?.card) { mark(); entry.parts.text.focus(); entry.parts.text.select(); } },
      u: undo, s: save, r: openReplace, "/": () => $("query").select(), "?": () => $("help").showModal(),
    };
    if (/^[1-9]$/.test(event.key) && entry?.alternatives[event.key - 1]) {
      actions[event.key] = () => change([[entry, "sentence", entry.alternatives[event.key - 1]]]);
    }
    if (Object.hasOwn(actions, event.key)) { event.preventDefault(); actions[event.key](); }
  });
  function approveNext(entry) {
    if (!entry) return;
    const approving = !entry.approved;
    change([[entry, "approved", approving]]);
    if (approving) move(1);
  }

  filter();
})();
