"use strict";
/* The page of a run in training: asks for its state, and shows the newest replay until another one is chosen. */

const PAUSE = 3000; // milliseconds between two questions
const byId = (id) => document.getElementById(id);
const shown = { name: null, follows: true };

function drawCurve(points) {
  const canvas = byId("curve");
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.max(1, width * scale);
  canvas.height = Math.max(1, height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  if (!points.length) return;
  const values = points.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = points.at(-1)[0];
  const style = getComputedStyle(document.body);
  pen.strokeStyle = style.getPropertyValue("--chosen");
  pen.fillStyle = style.getPropertyValue("--faint");
  pen.lineWidth = 2;
  pen.beginPath();
  for (const [frames, value] of points) {
    pen.lineTo(60 + (frames / last) * (width - 70), height - 12 - ((value - low) / (high - low || 1)) * (height - 24));
  }
  pen.stroke();
  pen.font = "12px system-ui, sans-serif";
  pen.fillText(high.toPrecision(4), 4, 16);
  pen.fillText(low.toPrecision(4), 4, height - 8);
}

function show(name) {
  if (name === shown.name) return;
  shown.name = name;
  byId("replay").hidden = false;
  byId("replay").src = `replay/${encodeURIComponent(name)}`;
}

function list(replays) {
  const buttons = replays.map(({ name, frames }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${frames.toLocaleString("en")} frames`;
    button.setAttribute("aria-pressed", name === shown.name);
    button.onclick = () => {
      shown.follows = name === replays.at(-1).name;
      show(name);
      list(replays);
    };
    return button;
  });
  byId("replays").replaceChildren(...buttons);
}

async function refresh() {
  try {
    const { curve, replays, problem } = await (await fetch("state")).json();
    if (shown.follows && replays.length) show(replays.at(-1).name);
    drawCurve(curve);
    list(replays);
    const reached = curve.length ? `${curve.at(-1)[0].toLocaleString("en")} frames, return ${curve.at(-1)[1].toPrecision(4)}` : "";
    byId("about").textContent = problem || reached || "waiting for the first iteration";
  } catch {
    byId("about").textContent = "The command has ended.";
  }
  document.body.dataset.ready = "true";
}

refresh();
setInterval(refresh, PAUSE);
