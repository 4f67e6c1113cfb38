// Keeps the page of this folder for times without a network, and adds the headers that static hosts can't: with them a
// browser gives the page threads, and holds its policy for every script. release.js says which files there are.
importScripts("release.js");

const { version, files, headers: HEADERS } = self.RELEASE;
// Not the host's: some don't know all of these.
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript", json: "application/json", webmanifest: "application/manifest+json", png: "image/png" };
const typeOf = (path) => TYPES[path.split(".").pop()] ?? "application/octet-stream";
const scope = self.registration.scope, PREFIX = `captioner-page ${scope} `, CACHE = PREFIX + version;

async function checksum(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// All files or none: a version is complete, or the one before it stays.
self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(CACHE);
    await Promise.all(Object.entries(files).map(async ([path, sha256]) => {
      const response = await fetch(new URL(path, scope), { cache: "no-store" });
      const bytes = await response.arrayBuffer();
      if (!response.ok || (await checksum(bytes)) !== sha256) throw new Error(`${path} is not the file of this version`);
      await cache.put(new URL(path, scope), new Response(bytes, { headers: { "Content-Type": typeOf(path) } }));
    }));
    if (!self.registration.active) await self.skipWaiting();
  })());
});

// A new version takes over when a page says that it has loaded all its files: not between two of them.
self.addEventListener("message", ({ data }) => {
  if (data === "take over") self.skipWaiting();
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  })());
});

self.addEventListener("fetch", (event) => {
  const { request } = event, address = new URL(request.url);
  if (request.method !== "GET" || !request.url.startsWith(scope)) return;
  const path = address.pathname.slice(new URL(scope).pathname.length) || "index.html";
  event.respondWith((async () => {
    const kept = path in files ? await (await caches.open(CACHE)).match(new URL(path, scope)) : null;
    const response = kept ?? (await fetch(request));
    if (!response.body || response.status === 206 || response.type === "opaque") return response;
    const headers = new Headers(response.headers);
    for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
    return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
  })());
});
