// Reads {scripts, programs, record, prefix, actions, factors, steps} and prints what the programs do: with actions a
// game of them, without a game of the policy; with `given` only the program `function`.
const { readFileSync } = require("fs");
const asked = JSON.parse(readFileSync(0, "utf8"));
const source = asked.scripts.map((path) => readFileSync(path, "utf8")).join("\n");
const { Program, Game } = new Function(`${source}; return { Program, Game: typeof Game === "undefined" ? null : Game };`)();
const plain = (result) => Object.fromEntries(Object.entries(result).map(([name, array]) => [name, Array.from(array, Number)]));

if (asked.given) {
  const program = new Program(asked.programs.function);
  const kinds = Object.fromEntries(program.inputs.map(([name, , kind]) => [name, kind]));
  const given = Object.entries(asked.given).map(([name, numbers]) => [name, Program.array(kinds[name], numbers)]);
  console.log(JSON.stringify(plain(program.run(Object.fromEntries(given)))));
} else {
  const game = new Game(asked.programs, asked.record, asked.prefix);
  const results = [plain(game.reset())];
  game.factors = asked.factors ? Float32Array.from(asked.factors) : null;
  const actions = [];
  for (let step = 0; step < asked.steps && !game.over; step++) {
    const action = asked.actions ? Float64Array.from(asked.actions[step]) : game.think().action;
    actions.push(Array.from(action));
    results.push(plain(game.step(action)));
  }
  console.log(JSON.stringify({ results, actions }));
}
