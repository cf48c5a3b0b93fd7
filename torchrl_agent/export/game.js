"use strict";
/* A game in a page: programs of a world's reset and step, and of the policy that plays in it. One world, any number of
 * agents; the policy reads its memory of the last step.
 */

class Game {
  /** Programs by name, numbers of the world's record by name, and the prefix of the agents' observations. */
  constructor(programs, record, prefix) {
    this.programs = Object.fromEntries(Object.entries(programs).map(([name, written]) => [name, new Program(written)]));
    this.record = record;
    this.prefix = prefix;
  }

  /** Begin a game: that of the record, or another one by a whole number. */
  reset(seed) {
    const given = {};
    for (const [name, , kind] of this.programs.reset.inputs) given[name] = Program.array(kind, this.record[name]);
    if (seed !== undefined) given["chance.key"][0] = seed | 0;
    this.world = this.programs.reset.run(given);
    this.memory = null;
    this.factors = null; // of what modules write, by agent and module: 0 ablates one; null: all act
    this.steps = 0;
    return this.world;
  }

  /** Numbers of the present observations by name, of all agents. */
  get observations() {
    const known = [...this.programs.reset.inputs.map(([name]) => name), "reward", "terminated", "truncated"];
    return Object.fromEntries(Object.entries(this.world).filter(([name]) => !known.includes(name)));
  }

  get over() {
    return this.steps > 0 && Boolean(this.world.terminated[0] || this.world.truncated[0]);
  }

  /** Return what the policy thinks and would do now. */
  think() {
    const given = {};
    for (const [name, , kind, shape] of this.programs.policy.inputs) {
      const carried = this.memory && this.memory[`next_${name}`];
      given[name] = this.world[this.prefix + name] || carried || new ProgramArrays[kind](programSize(shape));
      if (name === "is_init") given[name] = given[name].map(() => (this.memory ? 0 : 1));
      if (name === "module_factors") given[name] = this.factors || given[name].map(() => 1);
    }
    this.thought = this.programs.policy.run(given);
    return this.thought;
  }

  /** Step the world with the actions of all agents; the policy's memory is that of its last thought. */
  step(action) {
    this.world = this.programs.step.run({ ...this.world, action });
    this.memory = this.thought || null;
    this.steps += 1;
    return this.world;
  }
}
