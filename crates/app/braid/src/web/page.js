"use strict";
// The page of a braid server: it asks the control API of the server that it came from, and nobody else.

const EVERY_MS = 1000;
const SAMPLES = 90;
const CELLS = 32 * 6;
// 2^64 - 1 stands for no limit, and is larger than what numbers of JavaScript hold.
const NO_LIMIT = '{"max_kib":18446744073709551615}';

const $ = (id) => document.getElementById(id);
let token = "";
let timer = 0;
let lastEvent = 0;
let eventsSince = null;
const rates = new Map(); // by UUID: { before, samples, members }

/** An element; all that comes from the server is set as text, never as markup. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

class Refused extends Error {
  constructor(answer) {
    super(answer.error);
    this.code = answer.code;
  }
}

async function ask(path, body) {
  const options = { headers: { Authorization: "Bearer " + token }, cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  const answer = await (await fetch("/v1" + path, options)).json();
  if (answer.answer === "refused") throw new Refused(answer);
  return answer;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function size(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return (unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes.toFixed(1)) + " " + UNITS[unit];
}
const rate = (bytes) => size(bytes) + "/s";
function span(seconds) {
  if (seconds < 60) return Math.round(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
  return Math.floor(seconds / 3600) + " h " + Math.round((seconds % 3600) / 60) + " min";
}

/** Rates of an array and its members since the look before. */
function remember(stat) {
  const known = rates.get(stat.uuid) || { samples: [], members: new Map(), before: null };
  const before = known.before;
  if (before && stat.seconds > before.seconds) {
    const seconds = stat.seconds - before.seconds;
    const since = (now, old) => Math.max(0, now - old) / seconds;
    known.samples.push({
      read: since(stat.io.read.bytes, before.io.read.bytes),
      write: since(stat.io.write.bytes, before.io.write.bytes),
    });
    if (known.samples.length > SAMPLES) known.samples.shift();
    for (const member of stat.members) {
      const old = before.members.find((other) => other.number === member.number);
      if (old && member.io && old.io) {
        known.members.set(member.number, {
          read: since(member.io.read.bytes, old.io.read.bytes),
          write: since(member.io.write.bytes, old.io.write.bytes),
        });
      }
    }
  }
  known.before = stat;
  rates.set(stat.uuid, known);
  return known;
}

function chart(samples) {
  const most = Math.max(1, ...samples.map((one) => Math.max(one.read, one.write)));
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("viewBox", "0 0 " + (SAMPLES - 1) + " 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "bytes read and written per second in the last " + SAMPLES + " seconds");
  for (const kind of ["read", "write"]) {
    const line = document.createElementNS(namespace, "polyline");
    line.setAttribute("class", kind);
    const from = SAMPLES - samples.length;
    const points = samples.map((one, at) => from + at + "," + (98 - (94 * one[kind]) / most).toFixed(1));
    line.setAttribute("points", points.join(" "));
    svg.append(line);
  }
  const now = samples[samples.length - 1] || { read: 0, write: 0 };
  return make("div", {},
    make("h3", {}, "Rates, up to " + rate(most)), svg,
    make("div", { class: "legend" },
      make("span", {}, make("b", { class: "read" }), "read " + rate(now.read)),
      make("span", {}, make("b", { class: "write" }), "written " + rate(now.write))));
}

/** Every cell stands for the same part of the array, or of each component. */
function cells(detail) {
  const map = new Array(CELLS).fill("done");
  const fill = (from, until, what) => {
    const first = Math.max(0, Math.min(CELLS - 1, Math.floor(from * CELLS)));
    const last = Math.max(first, Math.min(CELLS - 1, Math.ceil(until * CELLS) - 1));
    for (let at = first; at <= last; at += 1) map[at] = what;
  };
  const legend = [["done", "in sync"]];
  let says = "Stripes";
  const { job, reshape, scrub } = detail;
  const copies = detail.level === "raid1" || detail.level === "raid10";
  const whole = (copies ? detail.array_size : detail.component_size) || detail.array_size || 1;
  if (reshape) {
    says = "Stripes: reshape";
    const total = job && job.kind === "reshape" && job.total ? job.total : detail.array_size || 1;
    const at = job && job.kind === "reshape" ? job.done / total : reshape.position / total;
    map.fill("todo");
    const border = reshape.backwards ? 1 - at : at;
    if (reshape.backwards) fill(border, 1, "new");
    else if (border > 0) fill(0, border, "new");
    fill(border, border, "now");
    legend.splice(0, 1, ["new", "new shape"], ["now", "border"], ["todo", "old shape"]);
  } else if (scrub) {
    says = "Stripes: " + scrub.found.kind;
    map.fill("todo");
    if (scrub.position > scrub.from) fill(scrub.from / whole, scrub.position / whole, "done");
    fill(scrub.position / whole, scrub.position / whole, "now");
    legend.splice(0, 1, ["done", "gone through"], ["now", "here"], ["todo", "to come"]);
  } else if (job && job.total) {
    says = "Stripes: " + job.kind;
    map.fill("todo");
    if (job.done > 0) fill(0, job.done / job.total, "done");
    fill(job.done / job.total, job.done / job.total, "now");
    legend.splice(0, 1, ["done", "in sync"], ["now", "here"], ["todo", "to come"]);
  } else if (detail.degraded > 0) {
    map.fill("doubt");
    legend.splice(0, 1, ["doubt", "without full redundancy"]);
  }
  const place = (found) => (copies ? found.offset : found.component_offset) / whole;
  const length = (found) => (copies ? found.length : found.component_length) / whole;
  const found = scrub ? scrub.found : detail.scrubbed;
  const wrong = found ? found.places.filter((one) => !one.mended) : [];
  for (const one of wrong) fill(place(one), place(one) + length(one), "bad");
  if (wrong.length) legend.push(["bad", "mismatch"]);
  if (detail.in_doubt) {
    for (const one of detail.in_doubt.places) fill(place(one), place(one) + length(one), "doubt");
    legend.push(["doubt", "in doubt"]);
  }
  return { map, legend, says };
}

function stripes(detail) {
  const { map, legend, says } = cells(detail);
  const grid = make("div", { class: "map", role: "img", "aria-label": says });
  for (const what of map) grid.append(make("i", { class: what }));
  const words = legend.map(([what, text]) => make("span", {}, make("b", { class: what }), text));
  return make("div", {}, make("h3", {}, says), grid, make("div", { class: "legend" }, ...words));
}

function progress(job, state) {
  const part = job.total ? job.done / job.total : 1;
  const left = job.eta_seconds === null ? "" : ", " + span(job.eta_seconds) + " to go";
  const text = job.kind + " " + (100 * part).toFixed(1) + " %" + (state ? ", " + state : "") +
    ", " + size(job.done) + " of " + size(job.total) + " at " + rate(job.rate) + left;
  return make("div", { class: "job" },
    make("h3", {}, text), make("progress", { max: 1, value: part, "aria-label": text }));
}

function members(detail, known) {
  const head = ["slot", "member", "state", "read", "written", ""];
  const rows = detail.members.map((member) => {
    const now = known.members.get(member.number);
    const tone = member.state === "active sync" ? "good" : member.state === "faulty" ? "bad" : "warn";
    const notes = [];
    if (member.fault) notes.push(member.fault);
    if (member.recovered !== null && member.data_size) {
      notes.push((100 * member.recovered / member.data_size).toFixed(0) + " % filled");
    }
    if (member.waiting_for_space) notes.push("its file system is full");
    if (member.errors) notes.push(member.errors + " corrected errors");
    notes.push(...member.smart);
    return make("tr", {},
      make("td", {}, member.slot === null ? "–" : String(member.slot)),
      make("td", { class: "name", title: member.name }, member.name.split("/").pop()),
      make("td", { class: tone }, member.state),
      make("td", { class: "number" }, now ? rate(now.read) : ""),
      make("td", { class: "number" }, now ? rate(now.write) : ""),
      make("td", {}, notes.join("; ")));
  });
  const heads = head.map((text) =>
    make("th", { class: text === "read" || text === "written" ? "number" : "" }, text));
  return make("div", { class: "scroll" },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
}

function say(text, bad) {
  const said = $("said");
  said.hidden = false;
  said.className = bad ? "bad" : "";
  said.textContent = text;
}

async function order(path, body) {
  try {
    const answer = await ask(path, body);
    say(answer.text || "done", false);
  } catch (error) {
    say(error.message, true);
  }
  look();
}

function button(text, path, body) {
  return make("button", { type: "button", onclick: () => order(path, body) }, text);
}

/** The controls are kept over looks, so that what is being typed stays. */
function speed(path, limit, body) {
  const input = make("input", {
    class: "rate", type: "number", min: "0", step: "any", inputMode: "decimal",
    placeholder: limit === null ? "no limit" : (limit / 1048576).toFixed(1).replace(/\.0$/, ""),
    "aria-label": "most MiB per second for jobs",
  });
  const set = () => {
    const text = input.value.trim();
    const value = Number(text);
    if (text !== "" && !(value > 0)) return say("the speed of jobs is a number of MiB/s above 0, or nothing for no limit", true);
    input.value = "";
    return order(path, body(text === "" ? null : value));
  };
  return [input, make("button", { type: "button", onclick: set }, "Limit MiB/s")];
}

function controls(detail) {
  const path = "/arrays/" + encodeURIComponent(detail.uuid);
  const all = [];
  const { scrub } = detail;
  if (scrub) {
    if (scrub.state === "paused") all.push(button("Resume", path + "/pause-scrub", { paused: false }));
    else all.push(button("Pause", path + "/pause-scrub", { paused: true }));
    all.push(button("Cancel " + scrub.found.kind, path + "/cancel", {}));
  } else if (detail.redundant && !detail.read_only) {
    all.push(button("Check", path + "/scrub", {}));
  }
  all.push(...speed(path + "/speed", detail.sync_speed_max === null ? null : detail.sync_speed_max * 1024,
    (value) => {
      if (value === null) return NO_LIMIT;
      const most = Math.max(1, Math.round(value * 1024));
      // The least speed cannot be above it.
      return { max_kib: most, min_kib: Math.min(most, detail.sync_speed_min) };
    }));
  return all;
}

function card(key, head, parts, tools, toolsKey) {
  const id = "card-" + key;
  let article = document.getElementById(id);
  if (!article) {
    article = make("article", { id },
      make("div", { class: "head" }), make("div", { class: "body" }), make("div", { class: "controls" }));
  }
  const [headElement, body, controlsElement] = article.children;
  headElement.replaceChildren(...head);
  body.replaceChildren(...parts.filter(Boolean));
  if (controlsElement.dataset.key !== toolsKey) {
    controlsElement.dataset.key = toolsKey;
    controlsElement.replaceChildren(...tools());
  }
  return article;
}

function arrayCard(detail, stat) {
  const known = remember(stat);
  const tone = detail.failed ? "bad" : detail.degraded ? "warn" : "good";
  const clients = detail.clients.length;
  const about = [detail.level, size(detail.array_size), detail.raid_devices + " slots"];
  if (detail.chunk_size) about.push("chunk " + size(detail.chunk_size));
  if (clients) about.push(clients + (clients === 1 ? " client" : " clients"));
  const head = [make("h2", {}, detail.name), make("span", { class: "state " + tone }, detail.state),
    make("span", { class: "about" }, about.join(" · "))];
  const { scrub } = detail;
  const job = detail.job ? progress(detail.job, null)
    : scrub ? progress({
      kind: scrub.found.kind, done: scrub.position - scrub.from, total: scrub.until - scrub.from, rate: 0, eta_seconds: null,
    }, scrub.state) : null;
  const parts = [job, make("div", { class: "columns" }, chart(known.samples), stripes(detail)), members(detail, known)];
  const key = [scrub ? scrub.state + scrub.found.kind : "", detail.redundant, detail.read_only, detail.sync_speed_min,
    detail.sync_speed_max].join();
  return card(detail.uuid, head, parts, () => controls(detail), key);
}

function volumeCard(detail) {
  const lost = detail.bricks.some((brick) => brick.state === "missing" || brick.state === "lost");
  const tone = detail.failure ? "bad" : lost ? "warn" : "good";
  const head = [make("h2", {}, detail.name), make("span", { class: "state " + tone }, detail.state),
    make("span", { class: "about" }, "volume · " + size(detail.used) + " of " + size(detail.size) + " used · " + detail.dir)];
  const rows = detail.bricks.map((brick) => make("tr", {},
    make("td", {}, String(brick.id)),
    make("td", { class: "name", title: brick.name }, brick.name.split("/").pop()),
    make("td", {}, brick.state),
    make("td", { class: "number" }, size(brick.used) + " of " + size(brick.size)),
    make("td", { class: "number" }, rate(brick.read_rate)),
    make("td", { class: "number" }, rate(brick.write_rate))));
  const heads = ["", "brick", "state", "used", "read", "written"].map((text, at) =>
    make("th", { class: at > 2 ? "number" : "" }, text));
  const { job } = detail;
  const parts = [job ? progress(job, job.state === "running" ? null : job.state) : null,
    make("div", { class: "scroll" },
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)))];
  const path = "/volumes/" + encodeURIComponent(detail.uuid);
  const deed = (text, what) => button(text, path + "/job", { deed: what });
  const tools = () => {
    if (!job) return detail.read_only ? [] : [button("Check", path + "/start", { job: { check: { repair: false } } })];
    const all = [job.state === "paused" ? deed("Resume", "resume") : deed("Pause", "pause"), deed("Cancel", "cancel")];
    all.push(...speed(path + "/job", detail.job_speed, (value) =>
      ({ deed: { speed: { bytes: value === null ? null : Math.round(value * 1048576) } } })));
    return all;
  };
  const key = [job ? job.kind + job.state : "", detail.job_speed, detail.read_only].join();
  return card(detail.uuid, head, parts, tools, key);
}

function replaceCards(section, cards) {
  // Cards that stay are not taken out, so that what has the focus keeps it.
  for (const old of [...section.children]) if (!cards.includes(old)) old.remove();
  cards.forEach((one, at) => {
    if (section.children[at] !== one) section.insertBefore(one, section.children[at] || null);
  });
}

async function events() {
  const answer = await ask("/events?after=" + lastEvent);
  // A server that has started anew counts anew.
  if (eventsSince !== null && answer.since !== eventsSince) {
    $("events").replaceChildren();
    eventsSince = answer.since;
    lastEvent = 0;
    return events();
  }
  eventsSince = answer.since;
  for (const event of answer.events) {
    lastEvent = event.number;
    const tone = event.priority === "critical" ? "bad" : event.priority === "warning" ? "warn" : "";
    $("events").prepend(make("li", {},
      make("time", {}, new Date(event.time * 1000).toLocaleTimeString()),
      make("b", { class: tone }, event.event), event.text));
  }
  while ($("events").children.length > 200) $("events").lastChild.remove();
  $("log").hidden = $("events").children.length === 0;
  return undefined;
}

async function draw() {
  const listed = (await ask("/arrays")).arrays;
  const one = async ({ uuid }) => {
    const path = "/arrays/" + encodeURIComponent(uuid);
    try {
      const [detail, stat] = await Promise.all([ask(path), ask(path + "/stat")]);
      return arrayCard(detail.detail, stat.stat);
    } catch (error) {
      // It was stopped meanwhile.
      if (error.code === "no-such-array") return null;
      throw error;
    }
  };
  const arrays = (await Promise.all(listed.map(one))).filter(Boolean);
  const volumes = [];
  for (const { uuid } of (await ask("/volumes")).volume.volumes) {
    volumes.push(volumeCard((await ask("/volumes/" + encodeURIComponent(uuid))).volume.status));
  }
  replaceCards($("arrays"), arrays);
  replaceCards($("volumes"), volumes);
  await events();
  const bad = document.querySelectorAll(".state.bad, .state.warn").length;
  const count = (number, thing) => number + " " + thing + (number === 1 ? "" : "s");
  let text = count(arrays.length, "array");
  if (volumes.length) text += ", " + count(volumes.length, "volume");
  text += bad ? ", " + bad + " in need of a look" : arrays.length + volumes.length ? ", all well" : "";
  $("summary").textContent = text;
  $("summary").className = "";
  document.title = (bad ? "⚠ " : "") + "braid " + location.host;
}

async function look() {
  clearTimeout(timer);
  try {
    if (!document.hidden) await draw();
  } catch (error) {
    if (error.code === "unauthorized") return login("That is not the token.");
    $("summary").textContent = error instanceof Refused ? error.message : "the server does not answer";
    $("summary").className = "lost";
  }
  clearTimeout(timer);
  timer = setTimeout(look, EVERY_MS);
  return undefined;
}

function login(why) {
  const first = token === "";
  token = "";
  sessionStorage.removeItem("token");
  $("login").hidden = false;
  $("why").textContent = first ? "" : why;
  $("summary").textContent = "";
  for (const id of ["arrays", "volumes", "events"]) $(id).replaceChildren();
  $("log").hidden = true;
  $("token").focus();
}

function begin() {
  $("host").textContent = location.host;
  $("login").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("token").value.trim();
    $("token").value = "";
    sessionStorage.setItem("token", token);
    $("login").hidden = true;
    look();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && token) look();
  });
  addEventListener("hashchange", enter);
  enter();
}

function enter() {
  // The part behind # is sent to no server; it is taken out of the address at once.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname);
  token = given || token || sessionStorage.getItem("token") || "";
  if (!token) return login("");
  sessionStorage.setItem("token", token);
  $("login").hidden = true;
  return look();
}

begin();
