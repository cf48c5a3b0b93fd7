"use strict";
/* The replay: its state stands in the URL's fragment, and every change draws the page anew. */

const LAYERS = { observed: "what it observes", sight: "sight", dreams: "dreams", follows: "what follows", others: "thoughts of others" };

class Replay {
  constructor(record) {
    this.record = record;
    this.layers = { observed: true, sight: true, dreams: true, follows: true, others: true };
    this.state = { step: 0, agent: record.first || 0, action: null, without: null, checkpoint: record.episodes.length - 1, cell: null };
    this.playing = null;
    this.images = new Map();
    this.readFragment();
    this.build();
    this.draw();
  }

  get episode() {
    return this.record.episodes[this.state.checkpoint];
  }

  get steps() {
    return this.episode.thoughts.length;
  }

  thought(step = this.state.step) {
    return this.episode.thoughts[step][this.state.agent];
  }

  name(action) {
    return this.record.names.actions[action] ?? `action ${action}`;
  }

  who(agent) {
    return this.record.agents > 1 ? `Agent ${agent}` : "The agent";
  }

  // --- state -------------------------------------------------------------------------------------------------------

  readFragment() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const whole = (name, most) => {
      const value = Number.parseInt(asked.get(name), 10);
      return Number.isInteger(value) ? Math.min(Math.max(value, 0), most) : null;
    };
    const { state, record } = this;
    state.checkpoint = whole("checkpoint", record.episodes.length - 1) ?? state.checkpoint;
    state.step = whole("step", this.steps - 1) ?? state.step;
    state.agent = whole("agent", record.agents - 1) ?? state.agent;
    state.action = whole("action", Math.max(record.names.actions.length - 1, 0));
    state.without = record.names.modules.includes(asked.get("without")) ? asked.get("without") : null;
  }

  writeFragment() {
    const { step, agent, action, without, checkpoint } = this.state;
    const parts = { step, agent, action, without };
    if (this.record.episodes.length > 1) parts.checkpoint = checkpoint;
    const kept = Object.entries(parts).filter(([, value]) => value !== null);
    try {
      history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
    } catch {
      // a page inside a notebook has no address of its own
    }
  }

  change(values) {
    if ("step" in values && values.step !== this.state.step) this.state.action = null;
    Object.assign(this.state, values);
    this.state.step = Math.min(Math.max(this.state.step, 0), this.steps - 1);
    this.draw();
  }

  /** Return the modules that surprise in the episode. */
  surprised() {
    const thoughts = this.episode.thoughts.flat().filter((thought) => thought);
    return new Set(thoughts.flatMap((thought) => thought.surprises.map(moduleOf)));
  }

  /** Return the layers that the record has something for. */
  offered() {
    const { scenes, thoughts, what_if } = this.episode;
    if (!scenes[0]) return [];
    if (!scenes[0].grid) return scenes[0].sights ? ["observed"] : [];
    const first = thoughts[0].find((thought) => thought) || {};
    const has = { sight: scenes[0].reach !== null, dreams: first.dreams, follows: what_if, others: first.others && first.others.number.length };
    return Object.keys(LAYERS).filter((layer) => has[layer]);
  }

  nextSurprise() {
    for (let step = this.state.step + 1; step < this.steps; step++) {
      const thought = this.thought(step);
      if (thought && thought.surprises.length) return this.change({ step });
    }
    return undefined;
  }

  play() {
    if (this.playing === null) {
      const pause = 1000 / Math.min(Math.max(this.record.world.rate, 2), 30);
      this.playing = setInterval(() => {
        if (this.state.step < this.steps - 1) this.change({ step: this.state.step + 1 });
        else this.play();
      }, pause);
    } else {
      clearInterval(this.playing);
      this.playing = null;
    }
    byId("play").textContent = this.playing === null ? "Play" : "Pause";
  }

  // --- controls ----------------------------------------------------------------------------------------------------

  build() {
    const { record } = this;
    document.title = `${record.run}: replay`;
    byId("title").textContent = record.run;
    const world = `${record.world.name}, game ${record.world.number} of seed ${record.seed}`;
    byId("about").textContent = `${world}; configuration ${record.config} (${record.config_hash})`;
    for (let agent = 0; agent < record.agents && record.agents > 1; agent++) {
      const choose = () => this.change({ agent, action: null });
      byId("agents").append(make("button", { type: "button", "data-agent": agent, onclick: choose }, `agent ${agent}`));
    }
    for (const layer of this.offered()) {
      const flip = () => {
        this.layers[layer] = !this.layers[layer];
        this.draw();
      };
      byId("layers").append(make("button", { type: "button", "data-layer": layer, onclick: flip }, LAYERS[layer]));
    }
    showLegend(byId("things"), record.names);
    byId("growth").hidden = record.episodes.length < 2;
    byId("checkpoint").max = record.episodes.length - 1;
    byId("checkpoint").oninput = (event) => this.change({ checkpoint: Number(event.target.value), action: null });
    byId("step").oninput = (event) => this.change({ step: Number(event.target.value) });
    byId("back").onclick = () => this.change({ step: this.state.step - 1 });
    byId("forward").onclick = () => this.change({ step: this.state.step + 1 });
    byId("surprise").onclick = () => this.nextSurprise();
    byId("surprise").hidden = this.surprised().size === 0;
    byId("play").onclick = () => this.play();
    byId("timeline").onclick = (event) => {
      const box = byId("timeline").getBoundingClientRect();
      this.change({ step: Math.round(((event.clientX - box.left) / box.width) * (this.steps - 1)) });
    };
    byId("scene").onclick = (event) => this.point(cellAt(byId("scene"), this.episode.scenes[this.state.step], event));
    byId("scene").onkeydown = (event) => this.moveCell(event);
    addEventListener("keydown", (event) => this.press(event));
    addEventListener("hashchange", () => {
      this.readFragment();
      this.draw();
    });
    addEventListener("resize", () => this.draw());
  }

  press(event) {
    if (event.target.tagName === "INPUT" || event.target.id === "scene" || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowRight") this.change({ step: this.state.step + 1 });
    else if (event.key === "ArrowLeft") this.change({ step: this.state.step - 1 });
    else if (event.key === "n") this.nextSurprise();
    else if (event.key === "p") this.play();
  }

  /** Move the cell that is asked about by the arrow keys, while the scene has the focus. */
  moveCell(event) {
    const scene = this.episode.scenes[this.state.step];
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const by = steps[event.key];
    if (!by || !scene || !scene.grid) return;
    event.preventDefault();
    const [x, y] = this.state.cell || scene.agents[this.state.agent];
    const { columns, rows } = scene.grid;
    this.point([Math.min(Math.max(x + by[0], 0), columns - 1), Math.min(Math.max(y + by[1], 0), rows - 1)]);
  }

  point(cell) {
    if (cell) this.change({ cell });
  }

  // --- drawing -----------------------------------------------------------------------------------------------------

  view() {
    const { state, record } = this;
    const thought = this.thought();
    const whatIf = this.episode.what_if ? this.episode.what_if[state.step][state.agent] : null;
    return {
      thought,
      whatIf,
      names: record.names,
      modules: record.names.modules,
      agents: record.agents,
      ahead: record.ahead,
      without: state.without,
      action: state.action ?? (thought ? thought.action[0] : 0),
      who: this.who(state.agent),
      name: (action) => this.name(action),
      pick: (action) => this.change({ action }),
      ablate: (without) => this.change({ without }),
      look: (agent) => this.change({ agent, action: null }),
    };
  }

  draw() {
    const view = this.view();
    const focused = document.activeElement && document.activeElement.dataset.action;
    this.drawScene(view);
    const ended = [card("Why", null, make("p", { class: "sentence" }, `${view.who} has left the game.`))];
    byId("mind").replaceChildren(...(view.thought ? panels(view) : ended));
    if (focused !== undefined) byId("mind").querySelector(`[data-action="${focused}"]`)?.focus();
    drawTimeline(this, byId("timeline"));
    this.drawControls(view);
    this.writeFragment();
  }

  drawControls(view) {
    const { state } = this;
    byId("step").max = this.steps - 1;
    byId("step").value = state.step;
    byId("checkpoint").value = state.checkpoint;
    byId("frames").textContent = `${this.episode.frames.toLocaleString("en")} frames`;
    byId("clock").textContent = `step ${state.step} of ${this.steps - 1}`;
    for (const button of byId("agents").children) {
      button.setAttribute("aria-pressed", Number(button.dataset.agent) === state.agent);
    }
    for (const button of byId("layers").children) button.setAttribute("aria-pressed", this.layers[button.dataset.layer]);
    byId("cell").textContent = state.cell ? this.aboutCell(state.cell) : "";
    byId("scene").setAttribute("aria-label", view.thought ? sentence(view) : `${view.who} has left the game.`);
  }

  drawScene(view) {
    const canvas = byId("scene");
    const scene = this.episode.scenes[this.state.step];
    if (!scene) {
      canvas.hidden = true;
      return;
    }
    const pen = beginScene(canvas, scene);
    if (scene.jpeg) this.drawImage(pen, scene);
    else drawShapes(pen, scene.shapes);
    if (scene.sights && this.layers.observed) drawSights(pen, scene.sights[this.state.agent] || []);
    if (scene.grid) this.drawThoughts(pen, scene, view);
  }

  drawImage(pen, scene) {
    const { jpeg } = scene;
    if (!this.images.has(jpeg)) {
      const image = new Image();
      image.onload = () => this.draw();
      image.src = `data:image/jpeg;base64,${jpeg}`;
      this.images.set(jpeg, image);
    }
    const image = this.images.get(jpeg);
    if (image.complete) pen.drawImage(image, 0, 0, ...scene.size);
  }

  drawThoughts(pen, scene, { thought, whatIf, action }) {
    const { agent, cell } = this.state;
    const { layers } = this;
    if (layers.sight) drawSight(pen, scene, agent);
    if (thought && layers.follows && whatIf && whatIf[action].path) {
      drawPath(pen, scene, agent, whatIf[action].path, LAYER_COLORS.truth, [], 4, 0.9);
    }
    if (thought && layers.dreams && thought.dreams && thought.dreams.paths) {
      thought.dreams.actions.forEach((first, index) => {
        const chosen = first === action;
        const path = thought.dreams.paths[index];
        drawPath(pen, scene, agent, path, LAYER_COLORS.dream, [2, 5], chosen ? 3 : 1.5, chosen ? 1 : 0.4);
      });
    }
    if (thought && layers.others && thought.others) {
      const written = {};
      thought.others.number.forEach((other, index) => {
        if (!scene.agents[other]) return;
        const place = scene.agents[other].slice(0, 2).join();
        const level = (written[place] = (written[place] ?? -1) + 1);
        const shares = thought.others.action[index];
        const did = thought.others.true_action[index];
        const expected = best(shares);
        const words = `${other}: ${this.name(expected)} ${percent(shares[expected])}`;
        drawThought(pen, scene, other, words, did < 0 ? null : did === expected, level);
      });
    }
    drawRim(pen, scene, scene.agents[agent], LAYER_COLORS.plain);
    if (cell) drawRim(pen, scene, cell, LAYER_COLORS.wrong);
  }

  /** Return what is in a cell, and when the agent saw it last. */
  aboutCell([x, y]) {
    const scene = this.episode.scenes[this.state.step];
    if (!scene || !scene.grid) return "";
    const things = [
      ...scene.places.filter((place) => place[1] === x && place[2] === y).map(([kind, , , open]) => (open ? kind : `${kind} (closed)`)),
      ...scene.agents.flatMap((agent, index) => (agent[0] === x && agent[1] === y ? [`agent ${index}`] : [])),
    ];
    const there = things.length ? things.join(", ") : "nothing";
    return `Cell ${x}, ${y}: ${there}. ${this.lastSeen(x, y)}`;
  }

  lastSeen(x, y) {
    const { step, agent } = this.state;
    for (let earlier = step; earlier >= 0; earlier--) {
      const { reach, agents } = this.episode.scenes[earlier];
      const [ax, ay, alive] = agents[agent];
      if (alive && (reach === null || Math.max(Math.abs(ax - x), Math.abs(ay - y)) <= reach)) {
        return earlier === step ? `${this.who(agent)} sees it now.` : `${this.who(agent)} saw it last ${step - earlier} steps ago.`;
      }
    }
    return `${this.who(agent)} has not seen it yet.`;
  }
}

begin((record) => {
  window.replay = new Replay(record);
});
