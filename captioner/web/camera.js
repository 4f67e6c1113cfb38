// A photo from the camera: the phone's own camera, or a dialog with the picture of a webcam.

// Calls `taken` with a file, or `failed` with a sentence.
function takePhoto(taken, failed) {
  const phone = matchMedia("(pointer: coarse)").matches;
  if (phone || !navigator.mediaDevices?.getUserMedia) document.getElementById("capture").click();
  else openWebcam(taken, failed);
}

async function openWebcam(taken, failed) {
  const dialog = document.getElementById("webcam"), video = dialog.querySelector("video");
  const [shoot, cancel] = dialog.querySelectorAll("button");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1920 } } });
  } catch (error) {
    failed(error.name === "NotAllowedError" ? "The browser doesn't allow this page to use the camera." : "There is no camera that can be used.");
    return;
  }
  video.srcObject = stream;
  dialog.addEventListener("close", () => stream.getTracks().forEach((track) => track.stop()), { once: true });
  cancel.onclick = () => dialog.close();
  shoot.onclick = () => {
    const canvas = document.createElement("canvas");
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => taken(new File([blob], "camera.jpg", { type: "image/jpeg" })), "image/jpeg", 0.95);
    dialog.close();
  };
  dialog.showModal();
}

export { takePhoto };
