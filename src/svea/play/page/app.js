// The page: connects, sends what is changed, shows what agents do. No path or command leaves here,
// only values of the setting; the server checks every one.

import { Bars, Line } from "./plots.js";
import { byId, Controls, readLink, writeLink } from "./controls.js";

const SEND_EVERY = 40; // milliseconds between changes of a dragged slider
const decoder = new TextDecoder();
const columns = [];
const state = { playing: true, picture: 0, waiting: 0, recording: false, pending: null, timer: 0 };
let socket;

const controls = new Controls((changes) => {
  state.pending = { ...state.pending, ...changes };
  if (!state.timer) {
    flush();
    state.timer = setTimeout(() => { state.timer = 0; flush(); }, SEND_EVERY);
  }
});

function flush() {
  if (state.pending && say({ do: "set", setting: state.pending })) state.pending = null;
}

function say(message) {
  if (socket?.readyState !== WebSocket.OPEN) return false;
  socket.send(JSON.stringify(message));
  return true;
}

function notice(text, good = false) {
  const line = byId("notice");
  line.replaceChildren(...(Array.isArray(text) ? text : [text]));
  line.classList.toggle("good", good);
  line.hidden = !text;
}

/** One agent's card. */
class Column {
  constructor(name) {
    this.node = byId("agent").content.firstElementChild.cloneNode(true);
    this.find = (selector) => this.node.querySelector(selector);
    this.find("h2").textContent = name;
    this.find(".about").textContent = "starting …";
    this.lines = [new Line(this.find(".plot-return")), new Line(this.find(".plot-q"))];
    this.bars = new Bars(this.find(".plot-action"));
    this.finished = [];
    this.over = false;
    byId("agents").append(this.node);
  }

  introduce(about) {
    this.about = about;
    const trained = about.decisions ? `, ${about.decisions.toLocaleString("en")} decisions` : "";
    const augment = about.augment ? ` with ${about.augment}` : "";
    this.find(".about").textContent = `${about.task} · ${about.method}${augment}${trained}`;
    if (about.most) this.find(".most").textContent = `return, at most ${about.most.toLocaleString("en")}`;
    if (!about.has_q) this.find(".q-caption").textContent = "no critic stored";
    this.bars.choices = about.choices;
    this.node.classList.remove("lost");
    this.problem("");
  }

  problem(text) {
    this.find(".problem").textContent = text;
    this.find(".problem").hidden = !text;
  }

  show(header, scene, seen, ...more) {
    const between = more.splice(more.length - header.between);
    const laid = more[0];
    const began = header.did === "begin";
    if (began) {
      this.lines.forEach((line) => line.clear());
      this.bars.set([]);
      this.over = false;
    }
    this.lines[0].add(header.returns);
    this.lines[1].add(header.q);
    if (header.actions.length) this.bars.set(header.actions.at(-1));
    this.playScene([...between, scene]);
    this.showSeen(seen, laid, header.overlay);
    this.find(".return").textContent = header.return.toFixed(header.return < 100 ? 1 : 0);
    this.find(".decision").textContent = header.length;
    const q = header.q.at(-1);
    this.find(".q").textContent = q === undefined || q === null ? "–" : q.toFixed(1);
    this.problem(header.problem ? `shown in train: ${header.problem}` : "");
    if (header.done && !this.over) this.finish(header);
    [...this.lines, this.bars].forEach((plot) => plot.draw());
  }

  /** The scenes since the last decision, in the time until the next; the last one stays. */
  playScene(scenes, wait = 1000 / (controls.rate * controls.setting.speed * scenes.length)) {
    clearTimeout(this.timer);
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = URL.createObjectURL(new Blob([scenes[0]], { type: "image/jpeg" }));
    const image = this.find(".scene img");
    image.src = this.url;
    image.hidden = false;
    this.find(".wait").hidden = true;
    const later = scenes.slice(1);
    if (later.length) this.timer = setTimeout(() => this.playScene(later, wait), wait);
  }

  finish(header) {
    this.over = true;
    const solved = header.success === null ? "" : header.success ? " ✓" : " ✗";
    const changed = state.exact ? "" : ", changed by hand";
    this.finished.unshift(`${header.return.toFixed(0)}${solved} in ${header.mode}${changed}`);
    this.finished.length = Math.min(this.finished.length, 4);
    this.find(".history").textContent = `ended: ${this.finished.join(" · ")}`;
  }

  showSeen(bytes, laid, overlay) {
    const side = Math.round(Math.sqrt(bytes.length / 9));
    const stack = this.find(".stack");
    const newest = this.find(".newest");
    if (newest.width !== side) Object.assign(newest, { width: side, height: side });
    if (stack.width !== 3 * side) Object.assign(stack, { width: 3 * side, height: side });
    for (let frame = 0; frame < 3; frame++) {
      const picture = toImage(bytes.subarray(frame * side * side * 3, (frame + 1) * side * side * 3), side);
      stack.getContext("2d").putImageData(picture, frame * side, 0);
      if (frame === 2) newest.getContext("2d").putImageData(laid ? toImage(laid, side) : picture, 0, 0);
    }
    const wanted = controls.setting.overlay;
    const over = { none: "sees", saliency: this.about?.has_q ? "what moves its Q-value" : "what moves its action", mask: "what its mask leaves" };
    this.find(".seen figcaption").textContent = wanted !== "none" && overlay === "none" ? `sees (no ${wanted})` : over[overlay];
  }
}

function toImage(rgb, side) {
  const image = new ImageData(side, side);
  for (let from = 0, to = 0; from < rgb.length; from += 3, to += 4) {
    image.data[to] = rgb[from];
    image.data[to + 1] = rgb[from + 1];
    image.data[to + 2] = rgb[from + 2];
    image.data[to + 3] = 255;
  }
  return image;
}

const handlers = {
  hello(message) {
    state.recording = false;
    showRecording();
    controls.offer(message);
    controls.follow(readLink(location.hash));
    byId("agents").replaceChildren();
    byId("agents").classList.toggle("several", message.agents.length > 1);
    columns.splice(0, columns.length, ...message.agents.map((name) => new Column(name)));
    controls.show();
    say({ do: "start", setting: controls.setting });
    notice("Starting the agents …");
  },
  agent(message) {
    columns[message.agent].introduce(message.about);
    if (message.agent === 0) controls.rate = message.about.rate;
    controls.show();
    if (columns.every((column) => column.about)) notice("");
  },
  picture(message) {
    state.picture = message.picture;
    state.waiting = message.agents.length;
    if (!state.waiting) say({ do: "shown", picture: state.picture });
    if (!state.pending) controls.follow({ episode: message.episode, seed: message.seed });
    const exact = byId("exact");
    exact.classList.toggle("yes", message.exact);
    state.exact = message.exact;
  },
  lost(message) {
    columns[message.agent].node.classList.add("lost");
    columns[message.agent].about ??= {};
    for (const place of [".about", ".wait"]) columns[message.agent].find(place).textContent = "not playing";
    columns[message.agent].problem(message.why);
  },
  restart(message) {
    columns[message.agent].problem(`${message.why}; it is started again, and all begin the episode again`);
  },
  problem(message) {
    state.recording = false;
    showRecording();
    notice(message.why);
  },
  paused() {
    setPlaying(false, false);
  },
  recording(message) {
    state.recording = true;
    showRecording(message.writing ? "Writing …" : `Recorded ${message.seconds} of 10 s`);
  },
  recorded(message) {
    state.recording = false;
    showRecording();
    const link = Object.assign(document.createElement("a"), { href: `films/${message.film}`, textContent: "open it" });
    notice([`Recorded ${message.path}: `, link], true);
  },
};

function receivePacket(buffer) {
  const view = new DataView(buffer);
  const length = view.getUint32(0, true);
  const header = JSON.parse(decoder.decode(new Uint8Array(buffer, 4, length)));
  const parts = [];
  let start = 4 + length;
  for (const size of header.parts) {
    parts.push(new Uint8Array(buffer, start, size));
    start += size;
  }
  const column = columns[header.agent];
  column.show(header, ...parts);
  if (column === columns.find((each) => !each.node.classList.contains("lost"))) showSituation(header);
  if (--state.waiting <= 0) say({ do: "shown", picture: state.picture });
}

function showSituation(header) {
  controls.showWorlds(header.worlds, header.world, header.order);
  controls.showFits(header.fits);
  byId("overlay").querySelector("[value=mask]").disabled = !columns.some((column) => column.about?.has_mask);
  const { seed, episode } = controls.setting;
  const rows = columns[header.agent].about?.rows;
  byId("exact").textContent = state.exact
    ? `Exact: episode ${episode} of svea eval --modes ${header.mode} --seed ${seed} --envs ${rows}`
    : "Changed by hand: this return is not a benchmark's. Reset for an exact episode once nothing is changed.";
}

function setPlaying(on, tell = true) {
  state.playing = on;
  byId("play").textContent = on ? "Pause" : "Play";
  byId("play").setAttribute("aria-pressed", String(on));
  if (tell) say({ do: "play", on });
}

function showRecording(text = "Recording …") {
  byId("record").disabled = state.recording;
  byId("record").classList.toggle("recording", state.recording);
  byId("record").textContent = state.recording ? text : "Record 10 s";
}

byId("play").addEventListener("click", () => setPlaying(!state.playing));
byId("step").addEventListener("click", () => { setPlaying(false, false); say({ do: "step" }); });
byId("reset").addEventListener("click", () => say({ do: "reset" }));
byId("record").addEventListener("click", () => {
  if (!say({ do: "record" })) return;
  if (!state.playing) setPlaying(true);
  state.recording = true;
  showRecording();
});
byId("link").addEventListener("click", async () => {
  history.replaceState(null, "", `#${writeLink(controls.setting)}`);
  try {
    await navigator.clipboard.writeText(location.href);
    notice("The link is copied. After a new start of svea play, give it as --setting LINK.", true);
  } catch {
    notice("The link is in the address bar. After a new start of svea play, give it as --setting LINK.", true);
  }
});
byId("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
});
document.addEventListener("keydown", (event) => {
  if (/^(INPUT|SELECT|BUTTON|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === " ") { event.preventDefault(); setPlaying(!state.playing); }
  if (event.key === ".") byId("step").click();
  if (event.key === "r") byId("reset").click();
});
addEventListener("hashchange", () => controls.set(readLink(location.hash)));

function connect() {
  const address = new URL("live", location.href);
  address.protocol = "ws:";
  address.hash = "";
  socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  socket.addEventListener("message", ({ data }) => {
    if (typeof data !== "string") return receivePacket(data);
    const message = JSON.parse(data);
    handlers[message.do]?.(message);
  });
  socket.addEventListener("close", ({ reason }) => {
    notice(`The connection is closed${reason ? `: ${reason}` : ""}. Reload this page to start again.`);
    for (const id of ["play", "step", "reset", "record"]) byId(id).disabled = true;
  });
}

connect();
