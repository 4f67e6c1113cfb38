// Requests to the service, and its errors in the words of the page.

let token = "";

class ServiceError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function explained(status, problem, name) {
  if (problem.detail?.includes("constraints")) return "No caption fits all the required and forbidden words.";
  if (problem.results) return `${name} can't be read as a photo. Choose a JPEG, PNG or WebP file.`;
  const detail = problem.detail ?? "";
  switch (status) {
    case 401: return "This service needs a token.";
    case 413: return `${name} is larger than this service allows.`;
    case 422: return `The options don't fit: ${detail}.`;
    case 429: return "Too many photos are waiting right now. Try again in a moment.";
    case 503: return detail.includes("loading") ? "The model is still loading. Try again in a moment." : "The service is shutting down.";
    case 504: return "This took too long. Try a smaller photo or a smaller beam.";
    default: return `Something went wrong in the service (${status}). ${detail}`;
  }
}

// A response to a picture with these options; `name` is what an error calls the picture.
async function post(path, file, options, name) {
  const form = new FormData();
  for (const [key, value] of Object.entries(options)) if (value !== "" && value.length !== 0) form.append(key, value);
  form.append("file", file, name);
  let response;
  try {
    response = await fetch(path, { method: "POST", body: form, headers: token ? { Authorization: `Bearer ${token}` } : {} });
  } catch {
    throw new ServiceError("The service can't be reached. Is it still running?", 0);
  }
  if (response.ok) return response;
  throw new ServiceError(explained(response.status, await response.json().catch(() => ({})), name), response.status);
}

const view = async (file, options, name) => (await post("v1/overlay?format=json", file, options, name)).json();
const drawing = async (format, file, options, rank, name) =>
  (await post(`v1/overlay?format=${format}&rank=${rank}`, file, options, name)).blob();

async function modelNames() {
  const response = await fetch("v1/models", { headers: token ? { Authorization: `Bearer ${token}` } : {} }).catch(() => null);
  return response?.ok ? (await response.json()).data.map((model) => model.id) : [];
}

function useToken(text) {
  token = text;
}

export { ServiceError, drawing, modelNames, useToken, view };
