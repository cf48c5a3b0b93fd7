"use strict";
/* The timeline below the world, of the agent that is shown. */

const GOAL_COLORS = ["#e69f00", "#56b4e9", "#26c28c", "#de87b9", "#f0e442", "#487ce4", "#c4c8d6"];
const SURPRISE_COLORS = { perception: "#56b4e9", "world model": "#e69f00", "social model": "#de87b9", policy: "#26c28c" };

/** Draw surprises, changed choices, own meters or the value, and goals over the steps. */
function drawTimeline(replay, canvas) {
  const box = canvas.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, box.width * scale);
  canvas.height = 150 * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const [width, height] = [box.width, 150];
  const x = (step) => 4 + (step * (width - 8)) / Math.max(1, replay.steps - 1);
  const wide = Math.max(1.5, (width - 8) / replay.steps);
  pen.fillStyle = "#0b0e14";
  pen.fillRect(0, 0, width, height);
  const { without } = replay.state;
  for (let step = 0; step < replay.steps; step++) {
    const thought = replay.thought(step);
    if (!thought) continue;
    const modules = [...new Set(thought.surprises.map((text) => text.split(":")[0]))];
    modules.forEach((module, index) => {
      pen.fillStyle = SURPRISE_COLORS[module] || LAYER_COLORS.plain;
      pen.fillRect(x(step) - 1.5, 5 + 5 * index, 3, 4);
    });
    if (without && thought.without && thought.without[without].action !== thought.action[0]) {
      pen.fillStyle = LAYER_COLORS.wrong;
      pen.fillRect(x(step) - wide / 2, 28, wide, 8);
    }
    if (thought.goal) {
      pen.fillStyle = GOAL_COLORS[thought.goal.type % GOAL_COLORS.length];
      pen.fillRect(x(step) - wide / 2, height - 14, wide + 0.5, 9);
    }
  }
  drawCurves(replay, pen, x, height);
  pen.fillStyle = "#ffffff";
  pen.fillRect(x(replay.state.step) - 1, 0, 2, height);
}

/** Draw own meters between 0 and 1, or the value between its extremes. */
function drawCurves(replay, pen, x, height) {
  const { names } = replay.record;
  const meters = names.own.map((name, index) => [name, index]).filter(([name]) => names.meters.includes(name));
  const curves = meters.map(([name, index]) => [name, (thought) => thought.own[index], 0, 1]);
  if (!curves.length) {
    const found = replay.episode.thoughts.map((here) => here[replay.state.agent]?.value ?? 0);
    curves.push(["value", (thought) => thought.value, Math.min(...found), Math.max(...found)]);
  }
  const minds = names.modules.length ? "Above: surprises by module; red: another choice without the module; " : "";
  byId("legend").replaceChildren(`${minds}${names.goals.length ? "below: goals; " : ""}curves:`);
  curves.forEach(([name, read, low, high], number) => {
    const color = (names.legend || {})[name] || GOAL_COLORS[number % GOAL_COLORS.length];
    pen.strokeStyle = color;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (let step = 0; step < replay.steps; step++) {
      const thought = replay.thought(step);
      if (!thought) break;
      const y = height - 20 - ((read(thought) - low) / (high - low || 1)) * (height - 62);
      if (step) pen.lineTo(x(step), y);
      else pen.moveTo(x(step), y);
    }
    pen.stroke();
    byId("legend").append(dot(color), name);
  });
}
