// The page of a picture: one viewer, or one per model side by side. All data is in the page; nothing is fetched.
import { createViewer } from "./viewer.js";

const data = JSON.parse(document.getElementById("data").textContent);
const roots = [...document.querySelectorAll(".viewer")], viewers = [];
const picture = roots[0].querySelector("img"), address = picture.src;

// Viewers side by side show shared words together: a column has the index of a word per viewer, or -1. The columns are
// those of the first captions; a viewer that shows another caption neither leads nor follows.
function follow(source, index) {
  const aligned = (v) => viewers[v].words === data.tracks[v][0].words;
  if (!aligned(source)) return;
  const column = index < 0 ? undefined : data.columns.find((words) => words[source] === index);
  viewers.forEach((viewer, v) => {
    if (v !== source && aligned(v)) viewer.select(column ? column[v] : -1, { quiet: true });
  });
}

data.tracks.forEach((captions, v) => {
  viewers.push(createViewer(roots[v], {
    ...data.style, captions, picture: v ? address : picture, top: data.top, controls: v === 0,
    keys: v ? undefined : document,
    onselect: (index) => follow(v, index),
    onstyle: (changes) => viewers.forEach((viewer, other) => other !== v && viewer.setStyle(changes)),
  }));
});

// In a notebook, the page is in a frame, which it makes as high as itself.
if (window.frameElement) {
  new ResizeObserver(() => (window.frameElement.height = document.documentElement.scrollHeight)).observe(document.body);
}

// page.html#3 opens at the third word, so that a link can point to it.
const linked = () => {
  const number = Number(location.hash.slice(1));
  if (number) viewers[0].select(number - 1);
  else if (viewers.length > 1) follow(0, viewers[0].selected);
};
addEventListener("hashchange", linked);
Promise.all(viewers.map((viewer) => viewer.ready)).then(() => {
  linked();
  document.documentElement.classList.add("ready");
});
