"use strict";
/* A person plays in a world beside trained agents: programs of the world and of the policy run in the page. Games are
 * recorded in the format of replays.
 */

const ARROWS = {
  ArrowUp: ["up", "thrust"],
  ArrowDown: ["down", "wait", "idle"],
  ArrowLeft: ["left"],
  ArrowRight: ["right"],
  " ": ["shoot", "interact"],
  e: ["interact"],
  w: ["wait", "idle"],
};

const KEYS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "space" };

class Play {
  constructor(data) {
    this.data = data;
    this.game = new Game(data.programs, data.record, data.prefix);
    this.seat = 0;
    this.handed = false;
    this.hidden = true;
    this.without = null;
    this.held = [];
    this.clock = null;
    this.turns = Boolean(data.marks.grid); // a town waits for its player
    this.build();
    this.fresh();
  }

  name(action) {
    return this.data.names.actions[action] ?? `action ${action}`;
  }

  // --- the game ----------------------------------------------------------------------------------------------------

  fresh(seed = Math.floor(Math.random() * 2 ** 31)) {
    this.seed = seed;
    this.stop();
    this.game.reset(seed);
    Object.assign(this, { scenes: [], thoughts: [], seats: [], earned: 0 });
    this.think();
    this.draw();
  }

  think() {
    const { agents, names } = this.data;
    const factor = (agent, module) => Number(agent !== this.seat || module !== this.without);
    this.game.factors = Float32Array.from(Array.from({ length: agents }, (_, agent) => names.modules.map((module) => factor(agent, module))).flat());
    this.choice = this.game.programs.policy && !this.game.over ? this.game.think() : null;
  }

  /** Ablate a module of the agent in the person's place; null: none. */
  ablate(without) {
    this.without = without;
    this.think();
    this.draw();
  }

  /** Return the probabilities that the policy gives an agent's actions; null without a policy. */
  probabilities(agent) {
    if (!this.choice) return null;
    const count = this.data.names.actions.length;
    const mask = this.game.world[`${this.data.prefix}action_mask`];
    const logits = Array.from(this.choice.logits.slice(agent * count, (agent + 1) * count));
    const legal = logits.map((_, action) => !mask || Boolean(mask[agent * count + action]));
    const top = Math.max(...logits.filter((_, action) => legal[action]));
    const weights = logits.map((logit, action) => (legal[action] ? Math.exp(logit - top) : 0));
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map((weight) => weight / sum);
  }

  /** Take a step: the person's action, or the agent's own one. */
  act(mine) {
    if (this.game.over) return;
    const { agents } = this.data;
    const actions = Float64Array.from({ length: agents }, (_, agent) => (this.choice ? this.choice.action[agent] : 0));
    if (mine !== null && !this.handed) actions[this.seat] = mine;
    const shares = Array.from({ length: agents }, (_, agent) => this.probabilities(agent));
    this.scenes.push(sceneOf(this.data.marks, this.game.world));
    this.seats.push(this.handed ? null : this.seat);
    const own = Array.from({ length: agents }, (_, agent) => this.entries(agent).map(([, value]) => value));
    const world = this.game.step(actions);
    const round = (number) => Math.round(1000 * number) / 1000;
    this.thoughts.push(
      shares.map((probabilities, agent) => ({
        action: [actions[agent]],
        probabilities: [(probabilities ?? this.data.names.actions.map((_, action) => Number(action === actions[agent]))).map(round)],
        value: null,
        reward: round(world.reward[agent] / this.data.unit),
        own: own[agent].map(round),
        surprises: [],
      })),
    );
    this.earned += world.reward[this.seat];
    this.think();
    if (this.game.over) this.stop();
    this.draw();
  }

  run() {
    if (this.game.over) this.fresh();
    const tick = () => this.act(this.held.length ? this.held[this.held.length - 1] : this.data.idle);
    this.clock = setInterval(tick, 1000 / Math.min(Math.max(this.data.world.rate, 2), 30));
    this.drawControls();
  }

  stop() {
    clearInterval(this.clock);
    this.clock = null;
  }

  // --- controls ----------------------------------------------------------------------------------------------------

  build() {
    const { data } = this;
    byId("title").textContent = `Play: ${data.run}`;
    const others = data.programs.policy && data.agents > 1 ? "the others are trained agents; " : "";
    byId("about").textContent = `${data.world.name}; ${others}${this.help()}`;
    for (let agent = 0; agent < data.agents && data.agents > 1; agent++) {
      const sit = () => {
        this.seat = agent;
        this.think();
        this.draw();
      };
      byId("agents").append(make("button", { type: "button", "data-agent": agent, onclick: sit }, `agent ${agent}`));
    }
    showLegend(byId("things"), data.names);
    byId("start").onclick = () => {
      if (this.clock === null) this.run();
      else this.stop();
      this.drawControls();
    };
    byId("agent").onclick = () => this.hand();
    byId("agent").hidden = !data.programs.policy;
    byId("hide").hidden = !this.turns || data.marks.reach === null;
    byId("hide").onclick = () => {
      this.hidden = !this.hidden;
      this.draw();
    };
    byId("fresh").onclick = () => this.fresh();
    byId("save").onclick = () => this.save();
    addEventListener("keydown", (event) => this.press(event));
    addEventListener("keyup", (event) => {
      this.held = this.held.filter((action) => action !== this.actionOf(event.key));
    });
  }

  help() {
    const { actions } = this.data.names;
    const keysOf = (action) => Object.keys(ARROWS).filter((key) => this.actionOf(key) === action).map((key) => KEYS[key] || key);
    const named = actions.map((name, action) => [keysOf(action), name]).filter(([keys]) => keys.length);
    return `${named.map(([keys, name]) => `${keys.join(" or ")} ${name}`).join(", ")}; digits 1 to ${actions.length}: any action`;
  }

  /** Return the action of a key, or null. */
  actionOf(key) {
    const { actions } = this.data.names;
    if (/^[1-9]$/.test(key)) return key <= actions.length ? key - 1 : null;
    const index = (ARROWS[key] || []).map((name) => actions.indexOf(name)).find((found) => found >= 0);
    return index ?? null;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey) return;
    if (event.key === "p") return this.hand();
    const action = this.actionOf(event.key);
    if (action === null || (event.target.tagName === "BUTTON" && event.key === " ")) return;
    event.preventDefault();
    if (this.turns) this.act(action);
    else if (!this.held.includes(action)) this.held.push(action);
  }

  hand() {
    if (!this.data.programs.policy) return;
    this.handed = !this.handed;
    if (this.turns && this.handed && this.clock === null) this.run();
    else if (this.turns && !this.handed) this.stop();
    this.drawControls();
  }

  /** Return the game as a record that `torchrl-agent replay` opens. */
  record() {
    const { data } = this;
    const { format, run, config, config_hash, world, agents, unit, names } = data;
    const own = data.marks.entries.map(([name]) => name);
    const { scenes, thoughts, seats } = this;
    const end = Object.fromEntries(Object.entries(this.game.observations).map(([name, numbers]) => [name, Array.from(numbers, (each) => Math.round(1000 * each) / 1000)]));
    return {
      format,
      version: VERSION,
      run: `${run}, played by a person`,
      config,
      config_hash,
      world,
      agents,
      unit,
      seed: this.seed,
      ahead: 0,
      first: this.seat,
      names: { ...names, own },
      episodes: [{ checkpoint: "", frames: 0, scenes, thoughts, start: data.record, seats, end }],
    };
  }

  save() {
    const link = make("a", { download: "game.json" });
    link.href = URL.createObjectURL(new Blob([JSON.stringify(this.record())], { type: "application/json" }));
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // --- drawing -----------------------------------------------------------------------------------------------------

  /** Return name, value, full value and color of the numbers of an agent. */
  entries(agent) {
    return this.data.marks.entries.map(([name, term, full, color]) => [name, markNumber(term, this.game.world, agent), full, color]);
  }

  draw() {
    const scene = sceneOf(this.data.marks, this.game.world);
    const pen = beginScene(byId("scene"), scene);
    drawShapes(pen, scene.shapes);
    if (scene.grid) {
      drawSight(pen, scene, this.seat, this.hidden ? 1 : 0.72);
      drawRim(pen, scene, scene.agents[this.seat], LAYER_COLORS.plain);
    }
    byId("mind").replaceChildren(this.you(), ...(this.choice ? [this.advice()] : []));
    this.drawControls();
  }

  drawControls() {
    byId("start").textContent = this.clock === null ? "Start" : "Pause";
    byId("start").hidden = this.turns && !this.handed;
    byId("agent").setAttribute("aria-pressed", this.handed);
    byId("hide").setAttribute("aria-pressed", this.hidden);
    for (const button of byId("agents").children) button.setAttribute("aria-pressed", Number(button.dataset.agent) === this.seat);
    const state = this.game.over ? "The game is over" : `Step ${this.game.steps}`;
    byId("status").textContent = `${state}: you have earned ${number(this.earned)}.`;
  }

  you() {
    const bars = this.entries(this.seat).map(([name, value, full, color]) =>
      make(
        "div",
        { class: "bar" },
        make("span", {}, name),
        full ? track(value / full, color) : make("span"),
        make("span", {}, full === 1 ? number(value) : `${Math.round(value)}`),
      ),
    );
    return card(this.data.agents > 1 ? `You are agent ${this.seat}` : "You", null, ...bars);
  }

  advice() {
    const shares = this.probabilities(this.seat);
    const top = best(shares);
    const bars = shares.map((share, action) =>
      make(
        "button",
        { type: "button", class: "bar", "data-action": action, onclick: () => this.act(action) },
        make("span", {}, `${this.name(action)}${action === top ? " ★" : ""}`),
        track(share, action === top ? "var(--policy)" : "var(--faint)"),
        make("span", {}, percent(share)),
      ),
    );
    const { modules } = this.data.names;
    const switches = ablations({ modules, without: this.without, thought: { without: {} }, ablate: (module) => this.ablate(module) });
    return card("What the agent would do in your place (click one to do it)", "var(--policy)", switches, ...bars);
  }
}

begin((data) => {
  window.play = new Play(data);
});
