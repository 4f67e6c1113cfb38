// The part of the captioner that computes, in a worker, so that pages stay responsive. captioner.js talks to it.
import { beamSearch } from "./beam_search.js";
import { createConfidence, pooledAnnotations } from "./confidence.js";
import { Vocabulary, createConstraints } from "./constraints.js";
import { GraphBackend } from "./graph_backend.js";
import { PictureError, readPicture, withoutCells } from "./reading.js";
import { OptionError, searchOptions } from "./search_options.js";
import { sentence } from "./sentences.js";

const WORD_ALTERNATIVES = 5; // ALTERNATIVES of captioner/evidence/word_evidence.py

let model = null; // what `load` has prepared

const parsed = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

// Prepares the model. `files` are bytes by path; `runtime` says which onnxruntime-web to use.
async function load({ settings, folder, files, runtime, threads }) {
  // Names as the manifest has them: those of another bundle's encoder begin with "../".
  const nameOf = (path) => path.replace(/^model\//, "../").replace(`../${settings.model}/`, "");
  const inModel = new Map([...files].map(([path, bytes]) => [nameOf(path), bytes]));
  const manifest = parsed(inModel.get("manifest.json")), vocabulary = new Vocabulary(parsed(inModel.get("vocabulary.json")));
  const ort = await import(new URL(runtime.script, folder));
  ort.env.logLevel = "error";
  Object.assign(ort.env.wasm, { numThreads: threads, wasmBinary: files.get(runtime.binary), wasmPaths: { mjs: new URL(runtime.loader, folder).href } });
  const confidence = inModel.has("confidence.json") ? createConfidence(parsed(inModel.get("confidence.json"))) : null;
  const backend = await GraphBackend.load(ort, manifest, inModel, vocabulary.words.length, runtime.encoder_providers);
  model = { settings, manifest, vocabulary, confidence, backend, functionWords: new Set(settings.function_words) };
  if (runtime.check && !(await givesKnownCaptions())) throw new Error("other captions than the reference");
  return { name: manifest.name, attention: manifest.attention, rows: backend.rows, cols: backend.cols, beam: settings.search.beam.value };
}

// Whether this runtime computes the captions that Python computed when the folder was written.
async function givesKnownCaptions() {
  for (const { seed, words, log_probabilities: expected } of model.settings.checks) {
    const [best] = await search(testPixels(model.backend.size, seed), searchOptions(model.settings.search));
    const close = best.words.every(({ logProbability }, i) => Math.abs(logProbability - expected[i]) < 0.02);
    if (best.words.map(({ text }) => text).join(" ") !== words.join(" ") || !close) return false;
  }
  return true;
}

// The pixels of a test picture: the same whole numbers as in captioner/web/reference_captions.py.
function testPixels(size, seed) {
  const pixels = new Uint8Array(size * size * 3);
  for (let y = 0, at = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      for (let c = 0; c < 3; c++) pixels[at++] = (x * (seed + 1) + y * (c + 1) + ((x * y) >> 5) * seed + 40 * c) & 255;
    }
  }
  return pixels;
}

// The captions of a picture as plain objects, best first.
async function search(pixels, options, { wordAlternatives = false } = {}) {
  const { backend, vocabulary, confidence } = model, annotations = await backend.encode(pixels);
  const constraints = createConstraints(options, vocabulary), topWords = wordAlternatives ? WORD_ALTERNATIVES : 0;
  const found = await beamSearch(backend, annotations, options, constraints, { topWords });
  const certainty = confidence?.(pooledAnnotations(annotations));
  return found.map((hypothesis) => captionOf(hypothesis, certainty));
}

function captionOf({ score, ended, steps }, certainty) {
  const { vocabulary, functionWords } = model;
  const words = steps.map(({ word, likeliest, ...values }) => {
    const text = vocabulary.words[word], alternatives = likeliest?.map(([number, probability]) => [vocabulary.words[number], probability]);
    return {
      text, probability: Math.exp(values.logProbability), ...values, cell: values.cell ?? null,
      content: !functionWords.has(text) && !text.startsWith("<"), ...(alternatives ? { alternatives } : {}),
    };
  });
  const end = ended ? words.pop() : null, texts = words.map(({ text }) => text);
  return {
    text: texts.join(" "), sentence: sentence(texts), confidence: certainty ? certainty(words) : null, score,
    logProbability: steps.reduce((sum, { logProbability }) => sum + logProbability, 0), words, end,
  };
}

// A caption with its alternatives. `request`: { file, name, options, erase, longSide, wordAlternatives }.
async function caption({ file, name, options, erase, longSide, wordAlternatives }) {
  const { backend, settings } = model, search_options = searchOptions(settings.search, options);
  createConstraints(search_options, model.vocabulary); // a wrong option is reported before the picture is read
  const { pixels, width, height, picture } = await readPicture(file, name, backend.size, { pixels: settings.pixel_limit, draft: settings.draft }, longSide);
  const [best, ...alternatives] = await search(withoutCells(pixels, backend.size, backend.rows, backend.cols, erase), search_options, { wordAlternatives });
  if (!best) throw new PictureError("No caption fits all the required and forbidden words.");
  return { ...best, alternatives, width, height, picture };
}

const METHODS = { load, caption };
let last = Promise.resolve();

// One call after the other: a graph runs for one of them at a time.
self.addEventListener("message", ({ data }) => (last = last.then(() => answer(data))));

async function answer({ id, method, argument }) {
  try {
    self.postMessage({ id, result: await METHODS[method](argument) });
  } catch (error) {
    const kind = error instanceof PictureError ? "picture" : error instanceof OptionError ? "option" : "defect";
    self.postMessage({ id, error: { kind, message: error.message ?? String(error) } });
  }
}
