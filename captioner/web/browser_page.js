// The page of a folder that `captioner web` wrote: its engine is the browser itself.
import { Captioner } from "./captioner.js";
import { captionViews } from "./caption_view.js";
import { PhotoError, startPhotoPage } from "./photo_page.js";

const MOST_ALTERNATIVES = 5, LONG_SIDE = 1000; // as in the overlay pages
const loadingBar = document.getElementById("loading"), about = document.getElementById("about");
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;

// The service worker keeps the page for times without a network. It also adds the headers without which a browser gives
// a page no threads; they count from the next load on, so the page loads itself once more, unless somebody uses it
// already: a photo that was given would be lost.
async function prepareServiceWorker() {
  if (!navigator.serviceWorker) return false;
  try {
    if (!(await isActive(await navigator.serviceWorker.register("./service_worker.js", { updateViaCache: "none" })))) return false;
    if (!reloadHelps() || page.inUse()) return true;
    sessionStorage.setItem("reloaded", "yes"); // once: some browsers don't take the headers
    addEventListener("pageshow", () => location.reload()); // a browser may bring this page back instead of the new one
    location.reload();
    await new Promise(() => {});
  } catch { // switched off, or no TLS: the page works without
  }
  return false;
}

const reloadHelps = () => !globalThis.crossOriginIsolated && !sessionStorage.getItem("reloaded");

// Whether the service worker runs, once it has loaded its files or failed to: a host may have changed some of them.
function isActive({ active, waiting, installing }) {
  const worker = installing ?? waiting;
  if (active || !worker) return Boolean(active);
  return new Promise((resolve) => {
    worker.addEventListener("statechange", () => {
      if (worker.state === "activated" || worker.state === "redundant") resolve(worker.state === "activated");
    });
  });
}

// Lets a new version of this folder take over. It counts from the next visit on.
async function welcomeNewVersion() {
  const registration = await navigator.serviceWorker.getRegistration();
  const takeOver = () => registration.waiting?.postMessage("take over");
  registration.addEventListener("updatefound", () => registration.installing.addEventListener("statechange", takeOver));
  takeOver();
}

// From here on, scripts of this page and its worker can make no request, to their own host either, and the page can load
// no picture but its icons, which browsers ask for when they install it. Scripts of the folder can still be loaded.
function forbidConnections() {
  const policy = document.createElement("meta"), icons = [...document.querySelectorAll("link[rel=icon]")];
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = `connect-src 'none'; img-src blob: data: ${icons.map(({ href }) => sourceOf(href)).join(" ")}`;
  document.head.append(policy);
}

// An address as a policy has it: there, these two letters separate.
const sourceOf = (address) => address.replace(/;/g, "%3B").replace(/,/g, "%2C");

async function load() {
  const offline = await prepareServiceWorker();
  const captioner = await Captioner.load({
    onprogress({ loaded, total }) {
      loadingBar.querySelector("progress").value = loaded / total;
      loadingBar.querySelector("span").textContent = loaded < total ? `Loading the model: ${megabytes(loaded)} of ${megabytes(total)}` : "Starting the model …";
    },
    onloaded: forbidConnections,
    ...choices(),
  });
  loadingBar.hidden = true;
  const { webgpu, threads } = captioner.engine;
  const runs = `${webgpu ? "WebGPU and " : ""}WebAssembly SIMD, ${threads === 1 ? "one thread" : `${threads} threads`}`;
  about.textContent = `Model ${captioner.model.name}. Computed in this browser with ${runs}.${offline ? " It works without a network from now on." : " It needs a network on the next visit too."}${offline && reloadHelps() ? " Load the page again for more threads." : ""}`;
  document.documentElement.classList.add("ready");
  if (offline) welcomeNewVersion();
  return captioner;
}

// The address may choose: ?threads=1, ?webgpu=no or ?webgpu=yes.
function choices() {
  const given = new URLSearchParams(location.search), webgpu = given.get("webgpu");
  return { threads: Number(given.get("threads")) || undefined, webgpu: webgpu ? webgpu === "yes" : undefined };
}

const list = (text) => (text ?? "").split(",").map((word) => word.trim()).filter(Boolean);
const rounded = (value, digits) => (value === null ? null : Number(value.toFixed(digits)));

const engine = {
  async caption(file, options, name) {
    try {
      const captioner = await loading, beam = options.beam ? Number(options.beam) : undefined;
      const caption = await captioner.caption(file, {
        name, beam, nBest: Math.min(beam ?? captioner.model.beam, MOST_ALTERNATIVES), longSide: LONG_SIDE, wordAlternatives: true,
        required: list(options.required), forbidden: list(options.forbidden),
        erase: list(options.erase).map((cell) => cell.split(":").map(Number)),
      });
      const captions = [caption, ...caption.alternatives];
      return {
        picture: URL.createObjectURL(caption.picture),
        captions: captionViews(caption, captioner.model),
        texts: captions.map(({ text, sentence }) => (options.style === "plain" ? text : sentence)),
        records: captions.map((one) => ({
          caption: one.text, sentence: one.sentence, confidence: rounded(one.confidence, 4),
          score: rounded(one.score, 6), log_probability: rounded(one.logProbability, 6), backend: "web",
        })),
      };
    } catch (error) {
      if (error.kind === "option") throw new PhotoError(`The options don't fit: ${error.message}`);
      throw new PhotoError(error.kind === "defect" ? `Something went wrong with ${name}: ${error.message}` : error.message);
    }
  },
  release: ({ picture }) => URL.revokeObjectURL(picture),
};
const page = startPhotoPage(engine);
const loading = load();
// A failure to load is told at once, and again for every photo.
loading.catch((error) => {
  loadingBar.hidden = true;
  page.complain(error.message);
});
