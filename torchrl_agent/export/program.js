"use strict";
/* Interpreter of programs that torchrl_agent.export.program writes: functions of tensors as lists of instructions.
 *
 * A slot holds the numbers of a tensor as a flat array. Every instruction knows the shape of its result and, for each
 * tensor that it reads, [slot] or [slot, offset, strides]: nothing about shapes is decided here.
 */

const ProgramArrays = {
  bool: Uint8Array,
  uint8: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: Float64Array, // whole numbers up to 2^53
  float32: Float32Array,
  float64: Float64Array,
};

const programSize = (shape) => shape.reduce((product, size) => product * size, 1);

/** Return where each element of a shape lies, in an array that is walked by strides. */
function programWalk(shape, offset, strides) {
  const count = programSize(shape);
  const places = new Int32Array(count);
  const at = new Array(shape.length).fill(0);
  let place = offset;
  for (let element = 0; element < count; element++) {
    places[element] = place;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      place += strides[axis];
      if (++at[axis] < shape[axis]) break;
      place -= strides[axis] * shape[axis];
      at[axis] = 0;
    }
  }
  return places;
}

/** A function of tensors: `run({name: array})` returns `{name: array}`. Arrays of a result stay its caller's. */
class Program {
  constructor(written) {
    this.inputs = written.inputs;
    this.outputs = written.outputs;
    this.constants = new Array(written.slots);
    for (const [slot, kind, numbers] of written.constants) this.constants[slot] = Program.array(kind, numbers);
    this.walks = new Map();
    this.instructions = written.instructions.map((instruction) => this.compile(instruction));
  }

  static array(kind, numbers) {
    if (typeof numbers !== "string") return ProgramArrays[kind].from(numbers);
    const bytes = Uint8Array.from(atob(numbers), (letter) => letter.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  compile([name, slot, kind, shape, reads, ...details]) {
    const make = programInstructions[name];
    if (!make) throw new Error(`this page does not know the instruction ${name}`);
    // a result of many parts walks its sources in their own shapes
    const shapes = name === "cat" ? details[0] : reads.map((_, number) => this.readShape(name, number, shape, details));
    const sources = reads.map(([from, offset, strides], number) => {
      const walk = strides === undefined ? null : this.walk(shapes[number], offset, strides);
      return (arrays) => [arrays[from], walk];
    });
    const compute = make(shape, sources, kind, ...details);
    return { slot, compute, Kind: ProgramArrays[kind], size: programSize(shape) };
  }

  /** Return the shape in which an instruction walks one of its sources. */
  readShape(name, number, shape, details) {
    if (name === "put" && number > 0) return details[0];
    if (name in programReductions || name === "argmax" || name === "argmin" || name === "var") return details[0];
    return shape;
  }

  walk(shape, offset, strides) {
    const key = JSON.stringify([shape, offset, strides]);
    if (!this.walks.has(key)) this.walks.set(key, programWalk(shape, offset, strides));
    return this.walks.get(key);
  }

  run(given) {
    const arrays = this.constants.slice();
    for (const [name, slot] of this.inputs) arrays[slot] = given[name];
    for (const { slot, compute, Kind, size } of this.instructions) {
      arrays[slot] = new Kind(size);
      compute(arrays, arrays[slot]);
    }
    return Object.fromEntries(this.outputs.map(([name, slot]) => [name, arrays[slot]]));
  }
}
