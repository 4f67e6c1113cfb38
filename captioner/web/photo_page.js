/* A page that captions photos. They come by drop, paste, file or camera; the viewer shows their captions. The page of
   `captioner serve` and the page that captions in the browser are both this one: they differ in their engine.

     startPhotoPage({
       caption(file, options, name),  // async: { picture, captions, texts, records }; throws a PhotoError
       drawing(format, file, options, rank, name), // optional, async: a Blob with the caption of this rank, 1 is the best
       release(answer),               // optional: called when the page forgets an answer
     })

   `options` are the values of the form by their names, and `erase` as "row:col,row:col". `captions` are for the viewer;
   `texts` and `records` (caption, sentence, confidence, score, log_probability, backend) have one entry per caption. */
import { createViewer } from "./viewer.js";
import { element } from "./stage.js";
import { takePhoto } from "./camera.js";
import { captionTable } from "./caption_table.js";

const MOST_PHOTOS = 30; // of the history: each keeps its picture in memory

// A sentence that the page shows. Any other exception is a defect.
class PhotoError extends Error {}

function startPhotoPage(engine) {
  const byId = (id) => document.getElementById(id);
  const optionsForm = byId("options").querySelector("form");
  const photos = []; // of the history: { file, name, options, answer }
  const rows = new Map(); // every photo of this visit, for the table: File -> { image, …record }
  const sources = new WeakMap(); // for each caption that the viewer may show: { text, options, rank } of its answer
  let viewer = null, shown = null, queue = Promise.resolve(), stopped = false, given = false;

  const chosenOptions = () => Object.fromEntries([...new FormData(optionsForm)].map(([key, value]) => [key, value.trim()]));
  const nameOf = (file) => file.name || "the photo";

  // What happens. A sentence that the viewer shows anyway is only for screen readers.
  function tell(text, { shownElsewhere = false } = {}) {
    byId("status").textContent = text;
    byId("status").className = shownElsewhere || !text ? "visually-hidden" : "";
  }

  function complain(text) {
    byId("error").textContent = text;
    byId("error").hidden = !text;
  }

  // The result of an action of the engine; a PhotoError becomes a sentence, and the result is null.
  async function attempt(action) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof PhotoError)) throw error;
      tell("");
      complain(error.message);
      return null;
    }
  }

  // Captions in the form that the viewer takes. Their sentences are for copying, and the rest is for drawing them.
  function remember(answer, options) {
    answer.captions.forEach((caption, i) => sources.set(caption, { text: answer.texts[i], options, rank: i + 1 }));
    return answer.captions;
  }

  const sourceOfShown = () => sources.get(viewer.captions.find(({ words }) => words === viewer.words));

  async function captionPhoto(file, replaced = null) {
    const name = nameOf(file), options = chosenOptions();
    const answer = await engine.caption(file, options, name);
    const photo = { file, name, options, answer };
    remember(answer, options);
    rows.set(file, { image: name, ...answer.records[0] });
    const place = photos.indexOf(replaced); // -1 as well if the photo has left the list meanwhile
    if (place >= 0) photos[place] = photo;
    else photos.unshift(photo);
    const forgotten = [...photos.splice(MOST_PHOTOS), ...(place >= 0 ? [replaced] : [])];
    show(photo);
    forgotten.forEach((old) => engine.release?.(old.answer));
    tell(answer.texts[0], { shownElsewhere: true });
  }

  // Captions files one after another. A file that fails does not stop the others.
  async function takeFiles(files, replaced = null) {
    const failures = [];
    let done = 0;
    complain("");
    stopped = false;
    byId("stop").hidden = files.length < 2;
    document.body.classList.add("busy");
    for (const file of files) {
      if (stopped) break;
      tell(files.length > 1 ? `Captioning ${done + 1} of ${files.length}: ${nameOf(file)} …` : `Captioning ${nameOf(file)} …`);
      try {
        await captionPhoto(file, replaced);
      } catch (error) {
        if (!(error instanceof PhotoError)) throw error;
        failures.push(error.message);
      }
      done++;
    }
    const captioned = done - failures.length;
    if (files.length > 1) tell(`${captioned} of ${files.length} photos have captions.${stopped ? " The rest was not begun." : ""}`);
    else if (failures.length) tell("");
    complain(failures.slice(0, 5).join(" ") + (failures.length > 5 ? ` And ${failures.length - 5} more could not be captioned.` : ""));
  }

  // One batch after the other: photos that arrive meanwhile wait.
  function enqueue(files, replaced = null) {
    given = true;
    queue = queue.catch(() => {}).then(() => takeFiles(files, replaced)).finally(() => {
      document.body.classList.remove("busy");
      byId("stop").hidden = true;
    });
    return queue;
  }

  function show(photo) {
    shown = photo;
    viewer?.destroy();
    byId("result").hidden = byId("actions").hidden = false;
    byId("start").classList.add("small");
    viewer = createViewer(byId("viewer"), {
      picture: photo.answer.picture, captions: photo.answer.captions, keys: document,
      recaption: ({ cells, without }) => again(photo, cells, without),
    });
    document.title = `${photo.answer.texts[0]} – captioner`;
    listPhotos();
  }

  // The caption of the same photo without some cells, or without some words.
  async function again(photo, cells, without) {
    const forbidden = [photo.options.forbidden, ...without].filter(Boolean).join(",");
    const erase = cells.map(([row, col]) => `${row}:${col}`).join(","), options = { ...photo.options, forbidden, erase };
    const answer = await engine.caption(photo.file, options, photo.name);
    engine.release?.(answer); // the viewer keeps its picture
    tell(answer.texts[0], { shownElsewhere: true });
    return remember(answer, options);
  }

  function listPhotos() {
    byId("history").hidden = photos.length < 2;
    byId("history").querySelector("ol").replaceChildren(...photos.map((photo) => {
      const button = element("button", { type: "button", "aria-current": photo === shown ? "true" : null },
        element("img", { src: photo.answer.picture, alt: "" }), element("span", {}, photo.answer.texts[0]));
      button.addEventListener("click", () => {
        show(photo);
        tell(photo.answer.texts[0], { shownElsewhere: true });
        byId("result").scrollIntoView({ block: "nearest" });
      });
      return element("li", {}, button);
    }));
  }

  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // pages without TLS have no clipboard
      const area = element("textarea", {}, text);
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function save(blob, name) {
    const address = URL.createObjectURL(blob);
    element("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    tell("Downloaded.");
  }

  // Draws the caption that the viewer shows.
  async function saveDrawing(format, ending) {
    const { file, name } = shown, { options, rank } = sourceOfShown();
    complain("");
    tell("Drawing …");
    const blob = await attempt(() => engine.drawing(format, file, options, rank, name));
    if (blob) save(blob, `${name.replace(/\.[^.]*$/, "")}${ending}`);
  }

  byId("choose").addEventListener("click", () => byId("file").click());
  byId("camera").addEventListener("click", () => takePhoto((file) => enqueue([file]), complain));
  byId("stop").addEventListener("click", () => {
    stopped = true;
    tell("Stopping after this photo …");
  });
  for (const id of ["file", "capture"]) {
    byId(id).addEventListener("change", async (event) => {
      await enqueue([...event.target.files]);
      event.target.value = ""; // so that the same file can be chosen again
    });
  }
  document.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    enqueue(files);
  });
  document.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    enqueue([...event.dataTransfer.files]);
  });
  byId("copy").addEventListener("click", async () => {
    const { text } = sourceOfShown();
    await copyText(text);
    tell(`Copied: ${text}`);
  });
  byId("table").addEventListener("click", () => save(new Blob([captionTable([...rows.values()])], { type: "text/csv" }), "captions.csv"));
  if (engine.drawing) {
    byId("sheet").addEventListener("click", () => saveDrawing("png", "-overlay.png"));
    byId("page").addEventListener("click", () => saveDrawing("html", ".html"));
  }
  optionsForm.addEventListener("submit", (event) => {
    event.preventDefault();
    if (shown) enqueue([shown.file], shown);
    else tell("The options apply to the next photo.");
  });
  // Whether a photo was given or is being dragged here, or anything was pressed: what was begun ends with the page.
  const inUse = () => given || document.body.classList.contains("dropping") || Boolean(navigator.userActivation?.hasBeenActive);
  return { complain, inUse };
}

export { PhotoError, startPhotoPage };
