"use strict";
/* The timeline below the world, of the agent that is shown. */

const GOAL_COLORS = ["#b8a4ea", "#a9714b", "#9ad14b", "#5fd3d3", "#ffb3a7", "#8c95ad"]; // not those of meters
const SURPRISE_COLORS = { perception: "#56b4e9", "world model": "#e69f00", "social model": "#de87b9", policy: "#26c28c" };

/** Return the color of a goal: that of the meter of its name, if there is one. */
function goalColor(names, index) {
  return (names.legend || {})[names.goals[index]] || GOAL_COLORS[index % GOAL_COLORS.length];
}

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
    const modules = [...new Set(thought.surprises.map(moduleOf))];
    modules.forEach((module, index) => {
      pen.fillStyle = SURPRISE_COLORS[module] || LAYER_COLORS.plain;
      pen.fillRect(x(step) - 1.5, 5 + 5 * index, 3, 4);
    });
    if (without && thought.without && thought.without[without].action !== thought.action[0]) {
      pen.fillStyle = LAYER_COLORS.wrong;
      pen.fillRect(x(step) - wide / 2, 28, wide, 8);
    }
    if (thought.goal) {
      pen.fillStyle = goalColor(replay.record.names, thought.goal.type);
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
    const [low, high] = [Math.min(...found), Math.max(...found)];
    curves.push([`value, ${number(low)} to ${number(high)}`, (thought) => thought.value, low, high]);
  }
  byId("legend").replaceChildren(...marksOf(replay), make("span", {}, "Curves:"));
  curves.forEach(([name, read, low, high], place) => {
    const color = (names.legend || {})[name] || GOAL_COLORS[place % GOAL_COLORS.length];
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
    byId("legend").append(item(name, color));
  });
}

/** Return the legend of what the timeline marks above and below its curves. */
function marksOf(replay) {
  const { names } = replay.record;
  const surprised = [...replay.surprised()].map((module) => item(module, SURPRISE_COLORS[module] || LAYER_COLORS.plain));
  const goals = names.goals.map((name, index) => item(name, goalColor(names, index)));
  return [
    ...(surprised.length ? [make("span", {}, "Above, surprises:"), ...surprised] : []),
    ...(replay.state.without ? [item(`another choice without ${words(replay.state.without)}`, LAYER_COLORS.wrong)] : []),
    ...(goals.length ? [make("span", {}, "Below, goals:"), ...goals] : []),
  ];
}
