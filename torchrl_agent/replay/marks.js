"use strict";
/* Marks of a world (envs/toolkit/marks.py) and numbers of its record make a scene. */

const markOperations = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "%": (a, b) => ((a % b) + b) % b,
  cos: Math.cos,
  sin: Math.sin,
};

/** Return the number of a term for the i-th shape. */
function markNumber(term, record, i) {
  if (typeof term === "number") return term;
  const [word, ...parts] = term;
  if (word === "entry") return record[parts[0]][parts[1] + i * parts[2]];
  return markOperations[word](...parts.map((part) => markNumber(part, record, i)));
}

/** Return the scene of a record, as `drawShapes` draws it and records hold it. */
function sceneOf(marks, record) {
  const { origin, scale } = marks;
  const round = (number) => Math.round(10 * number) / 10;
  const shapes = [];
  for (const mark of marks.shapes) {
    for (let i = 0; i < mark.count; i++) {
      if (mark.shown && !(markNumber(mark.shown, record, i) > 0)) continue;
      const points = mark.points.flatMap((point) =>
        point.map((term, axis) => round(origin[axis] + scale * markNumber(term, record, i))),
      );
      const rest = mark.stroke || mark.size ? [mark.stroke, mark.stroke ? round(mark.width ?? 1) : null] : [];
      const size = mark.size ? [round(mark.size)] : [];
      shapes.push([mark.kind, points, mark.fill, ...rest, ...size, ...(mark.words ? [mark.words[i], "center"] : [])]);
    }
  }
  const scene = { size: marks.size, ground: marks.ground, shapes };
  if (!marks.grid) return scene;
  const at = (name, i) => Number(record[name][i]);
  const agents = Array.from({ length: marks.agents }, (_, i) =>
    ["x", "y", "alive"].map((part) => at(`state.agents.${part}`, i)),
  );
  const open = (kind) => !(kind in marks.closed && markNumber(marks.closed[kind], record, 0) > 0);
  const places = marks.places.map((kind, slot) => [kind, at("state.layout.x", slot), at("state.layout.y", slot), open(kind)]);
  return { ...scene, grid: marks.grid, reach: marks.reach, agents, places: places.filter(([, x]) => x >= 0) };
}
