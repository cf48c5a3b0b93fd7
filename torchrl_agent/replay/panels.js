"use strict";
/* Panels of a mind beside the world. Words of a record are only ever set as text, never as markup. */

const MODULE_COLORS = {
  perception: "var(--perception)",
  "world model": "var(--world-model)",
  "social model": "var(--social-model)",
  policy: "var(--policy)",
};

/** Return an element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "color") element.style.setProperty("--color", value);
    else if (name === "width") element.style.width = value;
    else if (name === "onclick") element.onclick = value;
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const percent = (share) => `${Math.round(100 * share)} %`;
const number = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
/** Return the decimals that show two digits of the spread of numbers, as far as a record has them. */
const decimals = (values) => {
  const spread = Math.max(...values) - Math.min(...values);
  return spread > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(spread)), 2), 3) : 2;
};
const best = (values) => values.reduce((top, value, index) => (value > values[top] ? index : top), 0);
/** Return the module that a surprise is about. */
const moduleOf = (surprise) => surprise.split(":")[0];
const words = (name) => name.replaceAll("_", " ");

function card(title, color, ...children) {
  const heading = make("h2", { color: color || "var(--faint)" }, title);
  return make("section", { class: "card", "aria-label": title }, heading, ...children);
}

/** Fill an element with the colors of things in the world's pictures; meters have those of their curves and bars. */
function showLegend(element, names) {
  const things = Object.entries(names.legend || {}).filter(([name]) => !names.meters.includes(name));
  element.replaceChildren(...things.map(([name, color]) => item(name, color)));
}

/** Return a name in a legend, behind its color. */
function item(name, color) {
  return make("span", {}, dot(color), name);
}

function dot(color) {
  const found = make("span", { class: "dot" });
  found.style.background = color;
  return found;
}

function track(share, color) {
  return make("span", { class: "track", color }, make("span", { width: `${100 * Math.min(Math.max(share, 0), 1)}%` }));
}

function table(head, rows) {
  const line = (cells, tag) =>
    make("tr", {}, ...cells.map((cell) => (cell instanceof Node ? cell : make(tag, {}, cell))));
  const body = make("tbody", {}, ...rows.map((row) => line(row, "td")));
  const found = make("table", {}, make("thead", {}, line(head, "th")), body);
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": head.join(", ") }, found);
}

const marked = (text, wrong) => make("td", wrong ? { class: "wrong" } : {}, text);

/** Return the sentence at the top: "because" stands only where the choice without a module is another one. */
function sentence(view) {
  const { thought, name, who } = view;
  if (!thought.probabilities.length) return `${who} acts with ${thought.action.map((x) => number(x)).join(", ")}.`;
  const action = thought.action[0];
  const share = thought.probabilities[0][action];
  const parts = [`${who} does ${name(action)} (${percent(share)}).`];
  const tested = Object.entries(thought.without || {});
  const causes = tested.filter(([, other]) => other.action !== action);
  for (const [module, other] of causes) {
    parts.push(`It does so because of its ${words(module)}: without it, it would do ${name(other.action)}.`);
  }
  if (tested.length && !causes.length) parts.push("Without any one of its modules it would do the same.");
  const dreams = thought.dreams;
  if (dreams && dreams.actions.length > 1) {
    const top = dreams.actions[best(dreams.returns)];
    parts.push(top === action ? "Its best dream begins with this." : `Its best dream begins with ${name(top)}.`);
  }
  const follows = view.whatIf;
  if (follows) {
    const top = best(follows.map((each) => each.return));
    const gain = follows[top].return - follows[action].return;
    const more = gain > 0.05 && top !== action;
    parts.push(
      more
        ? `Played on with the same luck, ${name(top)} would have earned ${number(gain)} more in ${view.ahead} steps.`
        : `Played on with the same luck, nothing else would have earned clearly more in ${view.ahead} steps.`,
    );
  }
  return parts.join(" ");
}

function why(view) {
  const said = view.thought.surprises.map((text) =>
    make("p", { class: "surprise", color: MODULE_COLORS[moduleOf(text)] }, text),
  );
  return card("Why", null, make("p", { class: "sentence" }, sentence(view)), ...said);
}

function policy(view) {
  const { thought, name } = view;
  if (!thought.probabilities.length) {
    const rows = (thought.numbers ? thought.numbers.taken : thought.action).map((taken, index) => [
      `number ${index}`,
      number(taken),
      number(thought.numbers && thought.numbers.mean[index]),
    ]);
    return card("Policy", "var(--policy)", table(["action", "taken", "mean"], rows), values(view));
  }
  const ablated = view.without && thought.without ? thought.without[view.without] : null;
  const shares = ablated ? ablated.probabilities : thought.probabilities[0];
  const chosen = ablated ? ablated.action : thought.action[0];
  const bars = shares.map((share, index) => {
    const shown = thought.values ? number(thought.values[index]) : percent(share);
    const label = `${name(index)}${index === chosen ? " ★" : ""}`;
    const attributes = { type: "button", class: "bar", "aria-pressed": index === view.action, "data-action": index };
    return make(
      "button",
      { ...attributes, onclick: () => view.pick(index) },
      make("span", {}, label),
      track(share, index === chosen ? "var(--policy)" : "var(--faint)"),
      make("span", {}, shown),
    );
  });
  const title = thought.values ? "Policy: values of actions (click one)" : "Policy: probabilities of actions (click one)";
  return card(title, "var(--policy)", ablations(view), ...bars, heads(view), values(view));
}

/** Choices of the further heads of an action. */
function heads({ thought, names }) {
  const taken = thought.action.slice(1);
  if (!taken.length || thought.probabilities.length < 2) return null;
  const name = (head) => (names.heads || [])[head] ?? `choice ${head}`;
  const choice = (head, value) => ((names.choices || [])[head] || [])[value] ?? `${value}`;
  const rows = taken.map((value, index) => [
    name(index + 1),
    choice(index + 1, value),
    percent(thought.probabilities[index + 1][value]),
  ]);
  return table(["further choices", "value", "probability"], rows);
}

function ablations(view) {
  if (!view.modules.length || !view.thought.without) return null;
  const button = (module, label) =>
    make("button", { type: "button", "aria-pressed": view.without === module, onclick: () => view.ablate(module) }, label);
  const switches = [button(null, "whole mind"), ...view.modules.map((module) => button(module, `without ${words(module)}`))];
  return make("div", { class: "row", role: "group", "aria-label": "Ablation" }, ...switches);
}

function values({ thought }) {
  return make("p", { class: "note" }, `value ${number(thought.value)}, reward of this step ${number(thought.reward, 3)}`);
}

function rewards(view) {
  const chosen = view.thought.action[0];
  const taken = Object.entries(view.thought.parts || {});
  if (view.whatIf && view.thought.probabilities.length) {
    const [other, mine] = [view.whatIf[view.action], view.whatIf[chosen]];
    const same = view.action === chosen;
    const parts = [...new Set([...Object.keys(mine.parts), ...Object.keys(other.parts)])];
    const shown = decimals([mine.return, other.return, ...Object.values(mine.parts), ...Object.values(other.parts)]);
    const row = (part, a, b) => [part, number(b, shown), ...(same ? [] : [number(a, shown), number(a - b, shown)])];
    const rows = parts.map((part) => row(part, other.parts[part] || 0, mine.parts[part] || 0));
    rows.push(row("return", other.return, mine.return));
    const head = ["reward by part", `${view.name(chosen)} ★`, ...(same ? [] : [view.name(view.action), "difference"])];
    return card(`What follows in ${view.ahead} steps, with the same luck`, "var(--policy)", table(head, rows));
  }
  if (!taken.length) return null;
  return card("Reward by part", "var(--policy)", table(["part", "reward"], taken.map(([part, x]) => [part, number(x, 3)])));
}

function goal({ thought, names }) {
  if (!thought.goal) return null;
  const { type, probabilities, left, decided } = thought.goal;
  const chips = names.goals.map((name, index) =>
    make("span", index === type ? { class: "on" } : {}, dot(goalColor(names, index)), `${name} ${percent(probabilities[index])}`),
  );
  const held = decided ? "chosen in this step" : `held for ${left} more steps`;
  return card("Goal", "var(--policy)", make("div", { class: "row chips" }, ...chips), make("p", { class: "note" }, held));
}

function own(view) {
  const { thought, names } = view;
  if (!thought.own || !thought.own.length) return null;
  if (!thought.dreams) {
    const rows = thought.own.map((x, index) => [names.own[index], number(x)]);
    return card("Perception: own state", "var(--perception)", table(["own state", "now"], rows), doubt(view));
  }
  const { dreams } = thought;
  const at = dreams.actions.indexOf(view.action);
  const rows = thought.own.map((now, index) => {
    const [predicted, became] = [dreams.predicted[index], dreams.true[index]];
    const wrong = Math.abs(predicted - became) > 0.2;
    const dreamt = at < 0 ? "–" : number(dreams.states[at][index]);
    return [names.own[index], number(now), dreamt, number(predicted), marked(number(became), wrong)];
  });
  const head = ["own state", "now", `dream of ${view.name(view.action)}`, "predicted of what it did", "became"];
  return card("World model: dream and truth", "var(--world-model)", table(head, rows), doubt(view));
}

function doubt({ thought }) {
  if (!thought.belief || thought.belief.doubt === null) return null;
  return make("p", { class: "note" }, `its belief is ${number(Math.exp(thought.belief.doubt))} times as uncertain as usual`);
}

/** What can be read off its belief of what it sees, beside what is there. */
function belief({ thought, names }) {
  const read = thought.belief && thought.belief.read;
  if (!read) return null;
  const rows = Object.entries(read).flatMap(([key, pairs]) =>
    pairs.map(([index, held]) => {
      const seen = thought.observation[key][index];
      return [`${key}: ${(names.observation[key] || [])[index] ?? index}`, number(held), marked(number(seen), Math.abs(held - seen) > 0.1)];
    }),
  );
  return card("Perception: belief and truth", "var(--perception)", table(["what it sees", "in its belief", "there"], rows));
}

function others(view) {
  const { thought, names, name } = view;
  if (!thought.others || !thought.others.number.length) return null;
  const { others: seen } = thought;
  const rows = seen.number.map((other, index) => {
    const [action, need] = [best(seen.action[index]), best(seen.need[index])];
    const [did, needs] = [seen.true_action[index], seen.true_need ? seen.true_need[index] : null];
    const open = { type: "button", onclick: () => view.look(other), "aria-label": `mind of agent ${other}` };
    const who = other < view.agents ? make("button", open, `agent ${other}`) : `agent ${other}`;
    return [
      make("td", {}, who),
      `${name(action)} ${percent(seen.action[index][action])}`,
      marked(did < 0 ? "unknown" : name(did), did >= 0 && did !== action),
      names.meters[need] || `need ${need}`,
      marked(needs === null ? "unknown" : names.meters[needs] || `need ${needs}`, needs !== null && needs !== need),
    ];
  });
  const head = ["agent", "will do (thought)", "did", "needs (thought)", "needs"];
  return card("Social model: others, thought and truth", "var(--social-model)", table(head, rows), meters(view));
}

/** Meters of others, as thought beside the truth. */
function meters({ thought, names }) {
  const { number: numbers, meters: thoughtOf, true_meters: truth } = thought.others;
  const rows = numbers.map((other, index) => [
    `agent ${other}`,
    ...thoughtOf[index].map((x, meter) => {
      const real = truth ? truth[index][meter] : null;
      return marked(`${number(x)} / ${number(real)}`, real !== null && Math.abs(x - real) > 0.3);
    }),
  ]);
  const head = ["meters (thought / true)", ...(thoughtOf[0] || []).map((_, meter) => names.meters[meter] || `${meter}`)];
  return table(head, rows);
}

function observation({ thought, names }) {
  const seen = Object.entries(thought.observation || {});
  if (!seen.length) return null;
  const rows = seen.flatMap(([key, numbers]) =>
    numbers.map((x, index) => [`${key}: ${(names.observation[key] || [])[index] ?? index}`, number(x)]),
  );
  const shown = rows.filter(([, x]) => Number(x) !== 0);
  const title = make("summary", {}, `Observation: ${shown.length} of ${rows.length} numbers are not 0`);
  return make("section", { class: "card" }, make("details", {}, title, table(["number", "value"], shown)));
}

/** Return the panels of a view, in the order in which a mind works backwards from its action. */
function panels(view) {
  return [why, policy, rewards, goal, own, belief, others, observation].map((panel) => panel(view)).filter((panel) => panel);
}
