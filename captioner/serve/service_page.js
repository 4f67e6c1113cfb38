// The page of `captioner serve`: its engine is the service, which may ask for a token.
import { element } from "./stage.js";
import { PhotoError, startPhotoPage } from "./photo_page.js";
import { ServiceError, drawing, modelNames, useToken, view } from "./service_client.js";

const main = document.getElementById("main"), tokenForm = document.getElementById("token");
let entered = null; // a promise: the user has entered a token

function askForToken() {
  tokenForm.hidden = false;
  tokenForm.token.focus();
  document.body.classList.remove("busy");
  entered ??= new Promise((resolve) => tokenForm.addEventListener("submit", resolve, { once: true }));
  return entered;
}

// Calls the service, again after the user has entered a token.
async function call(request) {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.status !== 401) throw new PhotoError(error.message);
      await askForToken();
    }
  }
}

startPhotoPage({
  async caption(file, options, name) {
    if (file.size > Number(main.dataset.maxBody)) throw new PhotoError(`${name} is larger than this service allows.`);
    return call(() => view(file, options, name));
  },
  drawing: (format, file, options, rank, name) => call(() => drawing(format, file, options, rank, name)),
});

tokenForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(tokenForm.token.value);
  tokenForm.hidden = true;
  entered = null;
  listModels();
});

async function listModels() {
  const models = document.getElementById("models"), names = await modelNames();
  models.hidden = names.length < 2;
  models.querySelector("select").replaceChildren(...(names.length < 2 ? [] : names.map((name) => element("option", {}, name))));
}
listModels();
