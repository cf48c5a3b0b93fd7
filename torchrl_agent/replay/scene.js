"use strict";
/* Drawing of a scene on a canvas: the world's vectors, and above them what a mind thinks of it. */

const LAYER_COLORS = { dream: "#e69f00", truth: "#26c28c", sight: "#56b4e9", wrong: "#ff8a80", plain: "#d6deeb" };

/** Draw shapes `[kind, points, fill, stroke, width, size, words, align]`, see Canvas.vectors. */
function drawShapes(pen, shapes) {
  for (const [kind, points, fill, stroke, width, size, words, align] of shapes) {
    pen.beginPath();
    if (kind === "disc") pen.arc(points[0], points[1], size, 0, 2 * Math.PI);
    else if (kind === "box") pen.rect(points[0], points[1], points[2] - points[0], points[3] - points[1]);
    else if (kind === "text") {
      pen.font = `${size}px system-ui, sans-serif`;
      pen.textBaseline = "middle";
      pen.textAlign = align ?? "left";
      pen.fillStyle = fill;
      pen.fillText(words, points[0], points[1]);
      continue;
    } else {
      pen.moveTo(points[0], points[1]);
      for (let k = 2; k < points.length; k += 2) pen.lineTo(points[k], points[k + 1]);
      if (kind === "polygon") pen.closePath();
    }
    if (fill) {
      pen.fillStyle = fill;
      pen.fill();
    }
    if (stroke) {
      pen.strokeStyle = stroke;
      pen.lineWidth = width;
      pen.stroke();
    }
  }
}

/** Prepare a canvas for a scene and return its pen, in the scene's pixels. */
function beginScene(canvas, scene) {
  const scale = Math.max(1, Math.round((2 * 640) / scene.size[0]));
  canvas.width = scene.size[0] * scale;
  canvas.height = scene.size[1] * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  if (scene.ground) {
    pen.fillStyle = scene.ground;
    pen.fillRect(0, 0, ...scene.size);
  }
  return pen;
}

/** Return the middle of a cell in pixels. */
function cellCenter({ corner, cell }, [x, y]) {
  return [corner[0] + (x + 0.5) * cell, corner[1] + (y + 0.5) * cell];
}

/** Return the cell at a place of the canvas, or null. */
function cellAt(canvas, scene, event) {
  if (!scene || !scene.grid) return null;
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / scene.size[0], box.height / scene.size[1]);
  const left = (box.width - scale * scene.size[0]) / 2;
  const top = (box.height - scale * scene.size[1]) / 2;
  const { corner, cell, columns, rows } = scene.grid;
  const x = Math.floor(((event.clientX - box.left - left) / scale - corner[0]) / cell);
  const y = Math.floor(((event.clientY - box.top - top) / scale - corner[1]) / cell);
  return x >= 0 && y >= 0 && x < columns && y < rows ? [x, y] : null;
}

/** Darken the cells that an agent cannot see, and mark the edge of its window. */
function drawSight(pen, scene, agent, shade = 0.72) {
  const { corner, cell, columns, rows } = scene.grid;
  const [x, y, alive] = scene.agents[agent];
  if (scene.reach === null || !alive) return;
  const left = Math.max(x - scene.reach, 0);
  const top = Math.max(y - scene.reach, 0);
  const right = Math.min(x + scene.reach + 1, columns);
  const bottom = Math.min(y + scene.reach + 1, rows);
  pen.save();
  pen.beginPath();
  pen.rect(corner[0], corner[1], columns * cell, rows * cell);
  pen.rect(corner[0] + left * cell, corner[1] + top * cell, (right - left) * cell, (bottom - top) * cell);
  pen.fillStyle = `rgba(4, 6, 10, ${shade})`;
  pen.fill("evenodd");
  pen.strokeStyle = LAYER_COLORS.sight;
  pen.lineWidth = 1.5;
  pen.setLineDash([5, 4]);
  pen.strokeRect(corner[0] + left * cell, corner[1] + top * cell, (right - left) * cell, (bottom - top) * cell);
  pen.restore();
}

/** Draw lines `[x, y, x, y]` from an agent to what it observes. */
function drawSights(pen, lines) {
  pen.save();
  pen.strokeStyle = LAYER_COLORS.sight;
  pen.lineWidth = 1;
  for (const [x, y, toX, toY] of lines) {
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(toX, toY);
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.arc(toX, toY, 9, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.restore();
}

/** Draw a path of positions from 0 to 1; `dash` is empty for what really follows. */
function drawPath(pen, scene, agent, path, color, dash, width, alpha) {
  const { columns, rows } = scene.grid;
  const points = path.map(([x, y]) => cellCenter(scene.grid, [x * (columns - 1), y * (rows - 1)]));
  points.unshift(cellCenter(scene.grid, scene.agents[agent]));
  pen.save();
  pen.globalAlpha = alpha;
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.lineJoin = pen.lineCap = "round";
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach((point, k) => (k ? pen.lineTo(...point) : pen.moveTo(...point)));
  pen.stroke();
  pen.setLineDash([]);
  pen.beginPath();
  pen.arc(...points[points.length - 1], 4, 0, 2 * Math.PI);
  pen.stroke();
  pen.restore();
}

/** Write what is thought of another agent above its cell, `level` lines up; the rim says whether it is right. */
function drawThought(pen, scene, other, words, right, level) {
  const [x, y] = cellCenter(scene.grid, scene.agents[other]);
  pen.save();
  pen.font = "10px system-ui, sans-serif";
  pen.textAlign = "left";
  const width = pen.measureText(words).width + 10;
  const left = Math.min(Math.max(x - width / 2, 2), scene.size[0] - width - 2);
  const top = Math.max(y - scene.grid.cell * 0.5 - 16 - 18 * level, 2);
  pen.beginPath();
  pen.roundRect(left, top, width, 16, 6);
  pen.fillStyle = "rgba(16, 20, 30, 0.92)";
  pen.fill();
  pen.strokeStyle = right === null ? LAYER_COLORS.plain : right ? LAYER_COLORS.truth : LAYER_COLORS.wrong;
  pen.lineWidth = 1.2;
  pen.stroke();
  pen.fillStyle = LAYER_COLORS.plain;
  pen.textBaseline = "middle";
  pen.fillText(words, left + 5, top + 8.5);
  pen.restore();
}

/** Draw a rim around a cell. */
function drawRim(pen, scene, [x, y], color) {
  const { corner, cell } = scene.grid;
  pen.strokeStyle = color;
  pen.lineWidth = 1.8;
  pen.strokeRect(corner[0] + x * cell + 1, corner[1] + y * cell + 1, cell - 2, cell - 2);
}
