// The page of `captioner serve`. Photos come by drop, paste, file or camera; the viewer shows their captions.
import { createViewer } from "./viewer.js";
import { element } from "./stage.js";
import { ServiceError, drawing, modelNames, useToken, view } from "./service_client.js";
import { takePhoto } from "./camera.js";

const byId = (id) => document.getElementById(id);
const MOST_PHOTOS = 30; // of the history: each keeps its file in memory
const optionsForm = byId("options").querySelector("form"), tokenForm = byId("token");
const photos = []; // { file, name, options, answer }
const textOf = new WeakMap(); // the sentence of each caption that the viewer may show
let viewer = null, shown = null, waiting = null;

const chosenOptions = () => Object.fromEntries([...new FormData(optionsForm)].map(([key, value]) => [key, value.trim()]));

// What happens. A sentence that the viewer shows anyway is only for screen readers.
function tell(text, { shownElsewhere = false } = {}) {
  byId("status").textContent = text;
  byId("status").className = shownElsewhere || !text ? "visually-hidden" : "";
}

function complain(text) {
  byId("error").textContent = text;
  byId("error").hidden = !text;
}

// Captions in the form that the viewer takes, and their sentences for copying.
function remember(answer) {
  answer.captions.forEach((caption, i) => textOf.set(caption, answer.texts[i]));
  return answer.captions;
}

async function captionPhoto(file, replaced = null) {
  const name = file.name || "the photo", options = chosenOptions();
  complain("");
  if (file.size > Number(byId("main").dataset.maxBody)) {
    complain(`${name} is larger than this service allows.`);
    return;
  }
  tell(`Captioning ${name} …`);
  document.body.classList.add("busy");
  try {
    const answer = await view(file, options, name);
    const photo = { file, name, options, answer };
    remember(answer);
    const place = photos.indexOf(replaced); // -1 as well if the photo has left the list meanwhile
    if (place >= 0) photos[place] = photo;
    else photos.unshift(photo);
    photos.splice(MOST_PHOTOS);
    show(photo);
    tell(answer.texts[0], { shownElsewhere: true });
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    tell("");
    if (error.status === 401) askForToken(() => captionPhoto(file, replaced));
    else complain(error.message);
  } finally {
    document.body.classList.remove("busy");
  }
}

function askForToken(then) {
  tokenForm.hidden = false;
  tokenForm.token.focus();
  waiting = then;
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
  const erase = cells.map(([row, col]) => `${row}:${col}`).join(",");
  const answer = await view(photo.file, { ...photo.options, forbidden, erase }, photo.name);
  tell(answer.texts[0], { shownElsewhere: true });
  return remember(answer);
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

async function download(format, ending) {
  const { file, name, options } = shown;
  complain("");
  tell("Drawing …");
  try {
    const address = URL.createObjectURL(await drawing(format, file, options, name));
    element("a", { href: address, download: `${name.replace(/\.[^.]*$/, "")}${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    tell("Downloaded.");
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    tell("");
    complain(error.message);
  }
}

async function takeFiles(files) {
  for (const file of files) await captionPhoto(file);
}

byId("choose").addEventListener("click", () => byId("file").click());
byId("camera").addEventListener("click", () => takePhoto(captionPhoto, complain));
for (const id of ["file", "capture"]) {
  byId(id).addEventListener("change", async (event) => {
    await takeFiles([...event.target.files]);
    event.target.value = ""; // so that the same file can be chosen again
  });
}
document.addEventListener("paste", (event) => {
  const files = [...event.clipboardData.files];
  if (!files.length) return;
  event.preventDefault();
  takeFiles(files);
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
  takeFiles([...event.dataTransfer.files]);
});
byId("copy").addEventListener("click", async () => {
  const caption = viewer.captions.find((one) => one.words === viewer.words);
  await copyText(textOf.get(caption));
  tell(`Copied: ${textOf.get(caption)}`);
});
byId("sheet").addEventListener("click", () => download("png", "-overlay.png"));
byId("page").addEventListener("click", () => download("html", ".html"));
optionsForm.addEventListener("submit", (event) => {
  event.preventDefault();
  if (shown) captionPhoto(shown.file, shown);
  else tell("The options apply to the next photo.");
});
tokenForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(tokenForm.token.value);
  tokenForm.hidden = true;
  listModels();
  waiting?.();
});

async function listModels() {
  const names = await modelNames();
  byId("models").hidden = names.length < 2;
  optionsForm.model.replaceChildren(...(names.length < 2 ? [] : names.map((name) => element("option", {}, name))));
}
listModels();
