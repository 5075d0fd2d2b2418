"use strict";
// Images that go with a question: chosen, pasted or dropped, and made small enough for the body of its request.

const SIDES = [1568, 1024, 768, 512, 256]; // pixels that the longer side of one is brought to, until there is room
let attached = []; // as `data:` addresses
let taking = Promise.resolve();
let room = 0; // characters of them that the server takes

function pictures(images) {
  return images.map((src, at) => element("img", { src, alt: `Image ${at + 1} of the question` }));
}

function attach(images) {
  attached = images;
  find("tray").hidden = !images.length;
  find("tray").replaceChildren(...pictures(images).map((image, at) => element("li", {}, image,
    button("Remove", () => { attach(images.toSpliced(at, 1)); question.focus(); }, { "aria-label": `Remove image ${at + 1}` }))));
}

// Returns an image as an address of at most so many characters, or throws.
async function addressOf(file, most) {
  const bitmap = await createImageBitmap(file);
  if (file.size * 1.34 + 40 < most) {
    const reader = new FileReader();
    await new Promise((resolve, reject) => Object.assign(reader, { onload: resolve, onerror: reject }).readAsDataURL(file));
    return reader.result;
  }
  for (const side of SIDES) {
    const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
    const [width, height] = [bitmap.width, bitmap.height].map((each) => Math.max(1, Math.round(each * scale)));
    const canvas = element("canvas", { width, height });
    const drawing = canvas.getContext("2d");
    drawing.fillStyle = "white"; // a JPEG has nothing that shines through
    drawing.fillRect(0, 0, width, height);
    drawing.drawImage(bitmap, 0, 0, width, height);
    const made = canvas.toDataURL("image/jpeg", 0.8);
    if (made.length < most) return made;
  }
  throw new Error("there is no room left for it");
}

function take(files) { // one after the other: each has to know what room is left
  taking = taking.then(() => takeEach(files));
  return taking;
}

async function takeEach(files) {
  for (const file of files) {
    const left = room - attached.reduce((sum, each) => sum + each.length, 0);
    try {
      if (!room) throw new Error("who answers here takes no images");
      if (!IMAGE.test(`data:${file.type};base64,A`)) throw new Error("an image is a GIF, a JPEG, a PNG or a WebP");
      attach([...attached, await addressOf(file, (left * 2) / 3)]); // so that there is room for another
      say("");
    } catch (error) {
      say(sentence(`“${crop(file.name, 60)}” was not added: ${error.message}`));
    }
  }
  question.focus();
}

find("attach").addEventListener("click", () => find("file").click());
find("file").addEventListener("change", ({ target }) => take([...target.files]).then(() => { target.value = ""; }));
document.addEventListener("paste", (event) => {
  if (!event.clipboardData.files.length) return;
  event.preventDefault();
  take([...event.clipboardData.files]);
});
document.addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  take([...event.dataTransfer.files]);
});
