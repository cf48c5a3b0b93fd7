"use strict";
/* Instructions of programs (see program.js, which comes first): what each computes on flat arrays. */

/** Return the place in a reduced result of every element of a shape. */
function programTargets(shape, axes) {
  const strides = new Array(shape.length).fill(0);
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    if (axes.includes(axis)) continue;
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return programWalk(shape, 0, strides);
}

const roundToEven = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

const programElements = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  div_floor: (a, b) => Math.floor(a / b),
  div_trunc: (a, b) => Math.trunc(a / b),
  remainder: (a, b) => a - b * Math.floor(a / b),
  fmod: (a, b) => a % b,
  pow: Math.pow,
  minimum: Math.min,
  maximum: Math.max,
  atan2: Math.atan2,
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
  where: (c, a, b) => (c ? a : b),
  logical_and: (a, b) => a && b ? 1 : 0,
  logical_or: (a, b) => a || b ? 1 : 0,
  logical_xor: (a, b) => !a !== !b,
  logical_not: (a) => !a,
  bitwise_and: (a, b) => a & b,
  bitwise_or: (a, b) => a | b,
  bitwise_xor: (a, b) => a ^ b,
  bitwise_not: (a) => ~a,
  shift_left: (a, b) => a << b,
  shift_right: (a, b) => a >> b,
  neg: (a) => -a,
  abs: Math.abs,
  sign: Math.sign,
  floor: Math.floor,
  ceil: Math.ceil,
  round: roundToEven,
  trunc: Math.trunc,
  sqrt: Math.sqrt,
  rsqrt: (a) => 1 / Math.sqrt(a),
  reciprocal: (a) => 1 / a,
  exp: Math.exp,
  expm1: Math.expm1,
  log: Math.log,
  log1p: Math.log1p,
  log2: Math.log2,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  asin: Math.asin,
  acos: Math.acos,
  atan: Math.atan,
  sinh: Math.sinh,
  cosh: Math.cosh,
  tanh: Math.tanh,
  sigmoid: (a) => 1 / (1 + Math.exp(-a)),
  relu: (a) => Math.max(a, 0),
  isnan: (a) => a !== a,
  isinf: (a) => Math.abs(a) === Infinity,
};

/** Reductions: the first value, and how one more element changes it. */
const programReductions = {
  sum: [0, (result, x) => result + x],
  mean: [0, (result, x) => result + x],
  prod: [1, (result, x) => result * x],
  amax: [-Infinity, Math.max],
  amin: [Infinity, Math.min],
  any: [0, (result, x) => (result || x ? 1 : 0)],
  all: [1, (result, x) => (result && x ? 1 : 0)],
};

const programWrites = {
  set: (old, x) => x,
  sum: (old, x) => old + x,
  amax: Math.max,
  amin: Math.min,
  prod: (old, x) => old * x,
};

/** Instructions on whole tensors, each compiled to a function of (arrays, result); see `compile` of Program. */
const programInstructions = {
  read: (shape, [source]) => (arrays, result) => {
    const [from, at] = source(arrays);
    for (let k = 0; k < result.length; k++) result[k] = at ? from[at[k]] : from[k];
  },
  cast: (shape, [source], kind) => {
    const convert = kind === "bool" ? (x) => x !== 0 : kind.startsWith("float") ? (x) => x : Math.trunc;
    return (arrays, result) => {
      const [from, at] = source(arrays);
      for (let k = 0; k < result.length; k++) result[k] = convert(at ? from[at[k]] : from[k]);
    };
  },
  cat: (shape, sources, kind, shapes, before, widths) => (arrays, result) => {
    const width = widths.reduce((sum, each) => sum + each, 0);
    let start = 0;
    sources.forEach((source, number) => {
      const [from, at] = source(arrays);
      const size = widths[number];
      for (let row = 0; row < before; row++) {
        for (let k = 0; k < size; k++) {
          const place = row * size + k;
          result[row * width + start + k] = from[at ? at[place] : place];
        }
      }
      start += size;
    });
  },
  take: (shape, [source, ...indices], kind, strides, steps) => {
    const places = programWalk(shape, 0, strides);
    return (arrays, result) => {
      const [from] = source(arrays);
      const reads = indices.map((index) => index(arrays));
      for (let k = 0; k < result.length; k++) {
        result[k] = from[places[k] + programStep(reads, steps, k)];
      }
    };
  },
  put: (shape, [target, source, ...indices], kind, written, offset, strides, steps, how) => {
    const places = programWalk(written, offset, strides);
    const change = programWrites[how];
    return (arrays, result) => {
      const [held, heldAt] = target(arrays);
      for (let k = 0; k < result.length; k++) result[k] = heldAt ? held[heldAt[k]] : held[k];
      const [from, at] = source(arrays);
      const reads = indices.map((index) => index(arrays));
      for (let k = 0; k < places.length; k++) {
        const place = places[k] + programStep(reads, steps, k);
        result[place] = change(result[place], at ? from[at[k]] : from[k]);
      }
    };
  },
  rank: (shape, [source], kind, before, along, after, count, largest) => (arrays, result) => {
    const [from] = source(arrays);
    const sign = largest ? -1 : 1;
    for (let row = 0; row < before; row++) {
      for (let column = 0; column < after; column++) {
        const value = (k) => from[(row * along + k) * after + column];
        const order = [...Array(along).keys()].sort((a, b) => sign * (value(a) - value(b)) || a - b);
        for (let k = 0; k < count; k++) result[(row * count + k) * after + column] = order[k];
      }
    }
  },
  cumsum: (shape, [source], kind, before, along, after) => (arrays, result) => {
    const [from] = source(arrays);
    programLines(before, along, after, (place) => {
      let sum = 0;
      for (let k = 0; k < along; k++) result[place(k)] = sum += from[place(k)];
    });
  },
  softmax: (shape, [source], kind, ...sizes) => (arrays, result) =>
    programSoftmax(source(arrays)[0], result, sizes, false),
  log_softmax: (shape, [source], kind, ...sizes) => (arrays, result) =>
    programSoftmax(source(arrays)[0], result, sizes, true),
  var: (shape, [source], kind, given, axes, correction) => {
    const targets = programTargets(given, axes);
    const count = programSize(given) / programSize(shape);
    return (arrays, result) => {
      const [from, at] = source(arrays);
      const means = new Float64Array(result.length);
      const squares = new Float64Array(result.length);
      for (let k = 0; k < targets.length; k++) means[targets[k]] += (at ? from[at[k]] : from[k]) / count;
      for (let k = 0; k < targets.length; k++) squares[targets[k]] += ((at ? from[at[k]] : from[k]) - means[targets[k]]) ** 2;
      for (let k = 0; k < result.length; k++) result[k] = squares[k] / Math.max(0, count - correction);
    };
  },
  matmul: (shape, [left, right], kind, rows, inner, columns) => {
    const matrices = programSize(shape) / (rows * columns);
    return (arrays, result) => {
      const [a] = left(arrays);
      const [b] = right(arrays);
      const sums = new Float64Array(columns);
      for (let matrix = 0; matrix < matrices; matrix++) {
        for (let row = 0; row < rows; row++) {
          sums.fill(0);
          for (let k = 0; k < inner; k++) {
            const factor = a[(matrix * rows + row) * inner + k];
            if (factor === 0) continue;
            const start = (matrix * inner + k) * columns;
            for (let column = 0; column < columns; column++) sums[column] += factor * b[start + column];
          }
          result.set(sums, (matrix * rows + row) * columns);
        }
      }
    };
  },
  convolution: (shape, [seen, weight], kind, given, kernel, stride, padding, groups) => (arrays, result) =>
    programConvolve(seen(arrays)[0], weight(arrays)[0], result, { shape, given, kernel, stride, padding, groups }),
};

for (const [name, [first, change]] of Object.entries(programReductions)) {
  programInstructions[name] = (shape, [source], kind, given, axes) => {
    const targets = programTargets(given, axes);
    const count = name === "mean" ? programSize(given) / programSize(shape) : 1;
    return (arrays, result) => {
      const [from, at] = source(arrays);
      const found = new Float64Array(result.length).fill(first);
      for (let k = 0; k < targets.length; k++) found[targets[k]] = change(found[targets[k]], at ? from[at[k]] : from[k]);
      for (let k = 0; k < result.length; k++) result[k] = found[k] / count;
    };
  };
}

for (const [name, better] of [["argmax", (x, best) => x > best], ["argmin", (x, best) => x < best]]) {
  programInstructions[name] = (shape, [source], kind, given, axes) => {
    const targets = programTargets(given, axes);
    return (arrays, result) => {
      const [from, at] = source(arrays);
      const best = new Float64Array(result.length);
      const seen = new Int32Array(result.length);
      for (let k = 0; k < targets.length; k++) {
        const target = targets[k];
        const x = at ? from[at[k]] : from[k];
        if (seen[target] === 0 || better(x, best[target])) {
          best[target] = x;
          result[target] = seen[target];
        }
        seen[target]++;
      }
    };
  };
}

for (const [name, element] of Object.entries(programElements)) {
  programInstructions[name] = (shape, sources, kind) => {
    const compute = name === "mul" && kind === "int32" ? Math.imul : element;
    return (arrays, result) => {
      const [[a, p], [b, q] = [], [c, r] = []] = sources.map((source) => source(arrays));
      const count = result.length;
      if (!b) for (let k = 0; k < count; k++) result[k] = compute(a[p ? p[k] : k]);
      else if (!c) for (let k = 0; k < count; k++) result[k] = compute(a[p ? p[k] : k], b[q ? q[k] : k]);
      else for (let k = 0; k < count; k++) result[k] = compute(a[p ? p[k] : k], b[q ? q[k] : k], c[r ? r[k] : k]);
    };
  };
}

/** Return the distance that indices add to a place; an index below 0 counts from the end. */
function programStep(reads, steps, k) {
  let distance = 0;
  for (let axis = 0; axis < steps.length; axis++) {
    const [from, at] = reads[axis];
    const index = at ? from[at[k]] : from[k];
    distance += (index < 0 ? index + steps[axis][1] : index) * steps[axis][0];
  }
  return distance;
}

/** Call a function for every line along an axis, with the place of the line's k-th element. */
function programLines(before, along, after, visit) {
  for (let row = 0; row < before; row++) {
    for (let column = 0; column < after; column++) visit((k) => (row * along + k) * after + column);
  }
}

function programSoftmax(from, result, [before, along, after], logarithm) {
  programLines(before, along, after, (place) => {
    let top = -Infinity;
    let sum = 0;
    for (let k = 0; k < along; k++) top = Math.max(top, from[place(k)]);
    for (let k = 0; k < along; k++) sum += Math.exp(from[place(k)] - top);
    for (let k = 0; k < along; k++) {
      const x = from[place(k)] - top;
      result[place(k)] = logarithm ? x - Math.log(sum) : Math.exp(x) / sum;
    }
  });
}

function programConvolve(seen, weight, result, { shape, given, kernel, stride, padding, groups }) {
  const [, channels, height, width] = given;
  const [filters, depth, tall, wide] = kernel;
  const [batch, , rows, columns] = shape;
  const perGroup = filters / groups;
  for (let b = 0; b < batch; b++) {
    for (let filter = 0; filter < filters; filter++) {
      const first = Math.floor(filter / perGroup) * depth;
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          let sum = 0;
          for (let c = 0; c < depth; c++) {
            for (let i = 0; i < tall; i++) {
              const y = row * stride[0] - padding[0] + i;
              if (y < 0 || y >= height) continue;
              for (let j = 0; j < wide; j++) {
                const x = column * stride[1] - padding[1] + j;
                if (x < 0 || x >= width) continue;
                const pixel = seen[((b * channels + first + c) * height + y) * width + x];
                sum += pixel * weight[((filter * depth + c) * tall + i) * wide + j];
              }
            }
          }
          result[((b * filters + filter) * rows + row) * columns + column] = sum;
        }
      }
    }
  }
}
