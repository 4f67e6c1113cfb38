// The files of a folder that `captioner web` wrote: loaded with progress, verified, and kept in the browser's cache. A file
// whose size or checksum is not that of captioner.json is refused. The cache knows files by their checksum.
import { sha256 } from "./checksum.js";

// A sentence about a file that could not be loaded, and its path in the folder.
class LoadError extends Error {
  constructor(message, path = null) {
    super(message);
    this.path = path;
  }
}

// One cache per folder: a host may have several.
async function openCache(folder) {
  try {
    return await caches.open(`captioner-files ${folder.href}`);
  } catch { // pages without TLS, and private windows of some browsers, have none
    return null;
  }
}

// captioner.json: what the folder contains. The service worker keeps it for times without a network. The host is asked
// whether it has changed, because an old one does not fit the other files.
async function readSettings(folder) {
  const response = await fetch(new URL("captioner.json", folder), { cache: "no-cache" }).catch(() => null);
  if (!response?.ok) throw new LoadError("The folder of the model can't be reached.");
  return response.json();
}

// The bytes of these files, by their paths. `onprogress` gets the loaded and the total number of bytes.
async function loadFiles(folder, records, paths, onprogress = () => {}) {
  const total = paths.reduce((sum, path) => sum + records[path].size, 0), cache = await openCache(folder);
  let done = 0;
  const add = (bytes) => onprogress({ loaded: (done += bytes), total });
  const files = new Map();
  for (const path of paths) files.set(path, await loadFile(new URL(path, folder), path, records[path], cache, add));
  await forgetOthers(cache, folder, records);
  return files;
}

const keyOf = (address, record) => `${address}?sha256=${record.sha256}`;

async function loadFile(address, path, record, cache, add) {
  const key = keyOf(address, record), kept = await cache?.match(key);
  if (kept) {
    const bytes = new Uint8Array(await kept.arrayBuffer());
    if (await isRight(bytes, record)) {
      add(bytes.length);
      return bytes;
    }
    await cache.delete(key);
  }
  const bytes = await download(address, path, record, add);
  if (!(await isRight(bytes, record))) {
    throw new LoadError(`${path} is damaged or was changed: its checksum is not that of captioner.json. Reload the page; if it stays, the folder is broken.`, path);
  }
  await cache?.put(key, new Response(bytes)).catch(() => {}); // no space left: load it again next time
  return bytes;
}

const isRight = async (bytes, record) => bytes.length === record.size && (await sha256(bytes)) === record.sha256;

async function download(address, path, record, add) {
  const response = await fetch(address, { cache: "no-store" }).catch(() => null);
  if (!response?.ok) throw new LoadError(`${path} can't be loaded${response ? ` (${response.status})` : ": there is no connection"}.`, path);
  const bytes = new Uint8Array(record.size), reader = response.body.getReader();
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new LoadError(`${path} can't be loaded: the connection was lost.`, path);
    });
    if (done) return bytes.subarray(0, at);
    if (at + value.length > record.size) throw new LoadError(`${path} is larger than captioner.json says; it is damaged or was changed.`, path);
    bytes.set(value, at);
    at += value.length;
    add(value.length);
  }
}

// Removes files of earlier versions of this folder.
async function forgetOthers(cache, folder, records) {
  const wanted = new Set(Object.entries(records).map(([path, record]) => keyOf(new URL(path, folder), record)));
  for (const request of (await cache?.keys()) ?? []) if (!wanted.has(request.url)) await cache.delete(request);
}

export { LoadError, loadFiles, readSettings };
