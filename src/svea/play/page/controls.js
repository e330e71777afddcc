// The panel of controls: one setting, an object whose changes are sent, and which a link restores.
// Sliders of factors, such as light.strength, are made from the table that the server sends.

export const DEFAULTS = {
  mode: "train", intensity: 0.1, seed: 0, episode: 0, speed: 1, size: 256, overlay: "none",
  body: "", floor: "", sky: "", video: "", video_on_floor: true,
};
const SHOWN_AS = { intensity: (v) => v.toFixed(3), size: (v) => `${v}` }; // what stands right of a slider
const UNITS = { degrees: "°", decisions: "" };
const LOOK = ["body", "floor", "sky", "video", "video_on_floor"];
const FORMER = {}; // names in links from before there were factors
const COLORS = ["body", "floor", "sky"];
const MODES_ALSO = { test: "test (robot)" };

export const byId = (id) => document.getElementById(id);

/** The setting of a link: what follows its #; what is unknown or malformed is left out. */
export function readLink(text) {
  const setting = {};
  for (const [given, value] of new URLSearchParams(text.replace(/^#/, ""))) {
    const name = FORMER[given] ?? given;
    const usual = DEFAULTS[name];
    if (usual === undefined) continue;
    if (typeof usual === "boolean") setting[name] = value === "true";
    else if (typeof usual === "number") {
      if (Number.isFinite(Number(value))) setting[name] = Number(value);
    } else setting[name] = value;
  }
  return setting;
}

export function writeLink(setting) {
  const changed = Object.entries(setting).filter(([name, value]) => value !== DEFAULTS[name]);
  return new URLSearchParams(changed).toString();
}

export class Controls {
  constructor(onChange) {
    this.setting = { ...DEFAULTS };
    this.onChange = onChange;
    this.order = [];
    this.worlds = [];
    this.rate = 10;
    for (const name of Object.keys(SHOWN_AS)) this.listen(name);
    for (const name of ["seed", "episode"]) {
      byId(name).addEventListener("change", () => {
        const input = byId(name);
        const value = Math.min(Number(input.max), Math.max(0, Math.round(Number(input.value) || 0)));
        this.set({ [name]: value });
      });
    }
    for (const name of ["mode", "video", "overlay"]) {
      byId(name).addEventListener("change", () => this.set({ [name]: byId(name).value }));
    }
    byId("video_on_floor").addEventListener("change", () => this.set({ video_on_floor: byId("video_on_floor").checked }));
    byId("speed").addEventListener("input", () => this.set({ speed: Number((2 ** byId("speed").value).toFixed(2)) }));
    byId("world").addEventListener("change", () => this.chooseWorld(byId("world").selectedIndex));
    for (const name of COLORS) {
      byId(name).addEventListener("input", () => this.set({ [name]: byId(name).value }));
      byId(`${name}-hue`).addEventListener("input", () => this.set({ [name]: hueColor(Number(byId(`${name}-hue`).value)) }));
    }
    byId("colors-random").addEventListener("click", () => {
      const [body, floor, sky] = this.colors[Math.floor(Math.random() * this.colors.length)];
      this.set({ body, floor, sky });
    });
    byId("colors-own").addEventListener("click", () => this.set({ body: "", floor: "", sky: "" }));
    byId("neutral").addEventListener("click", () =>
      this.set(Object.fromEntries(LOOK.map((name) => [name, DEFAULTS[name]]))));
  }

  listen(name) {
    byId(name).addEventListener("input", () => this.set({ [name]: Number(byId(name).value) }));
  }

  /** A slider for a factor, in the place of its group. */
  addSlider({ name, unit, least, most, step, usual, about, was }) {
    if (was) FORMER[was] = name;
    if (name in DEFAULTS) return; // a second hello
    const group = name.split(".")[0];
    const label = byId("slider").content.firstElementChild.cloneNode(true);
    Object.assign(label, { title: about }).dataset.fits = group;
    const place = document.querySelector(`[data-factors="${group}"]`);
    const shown = "short" in place.dataset ? name.slice(group.length + 1) : name;
    label.querySelector("span").textContent = shown.replace(/[._]/g, " ");
    Object.assign(label.querySelector("input"), { id: name, min: least, max: most, step, value: usual });
    place.append(label);
    DEFAULTS[name] = this.setting[name] = usual;
    SHOWN_AS[name] = (v) => `${Number(v.toFixed(2))}${UNITS[unit] ?? ` ${unit}`}`;
    LOOK.push(name);
    this.listen(name);
  }

  /** What the server offers. */
  offer(hello) {
    this.colors = hello.colors;
    hello.factors.forEach((factor) => this.addSlider(factor));
    const groups = Object.entries(hello.groups).map(([label, names]) => {
      const group = Object.assign(document.createElement("optgroup"), { label });
      options(group, names.map((name) => [name, MODES_ALSO[name] ?? name]));
      return group;
    });
    byId("mode").replaceChildren(...groups);
    options(byId("video"), [["", "none"], ...hello.clips.map((name) => [name, name])]);
  }

  set(changes) {
    this.setting = { ...this.setting, ...changes };
    this.show();
    this.onChange(changes);
  }

  /** The server has gone on to another episode, or says what can be changed. */
  follow(changes) {
    this.setting = { ...this.setting, ...changes };
    this.show();
  }

  /** Choosing a world chooses the evaluation's episode that shows it. */
  chooseWorld(number) {
    this.set({ episode: Math.max(0, this.order.indexOf(number)) });
  }

  showWorlds(worlds, world, order) {
    this.order = order;
    const select = byId("world");
    if (worlds.join() !== this.worlds.join() || !select.options.length) {
      this.worlds = worlds;
      options(select, worlds.length ? worlds.map((name) => [name, name]) : [["", "one"]]);
      select.disabled = !worlds.length;
    }
    if (worlds.length) select.selectedIndex = worlds.indexOf(String(world));
  }

  showFits(fits) {
    for (const label of document.querySelectorAll("[data-fits]")) {
      const fit = fits[label.dataset.fits] !== false;
      label.classList.toggle("off", !fit);
      for (const input of label.querySelectorAll("input, select")) input.disabled = !fit;
    }
  }

  show() {
    const { setting } = this;
    for (const [name, shown] of Object.entries(SHOWN_AS)) {
      const input = byId(name);
      if (document.activeElement !== input || Number(input.value) !== setting[name]) input.value = setting[name];
      input.parentElement.querySelector("output").textContent = shown(setting[name]);
    }
    for (const name of ["seed", "episode"]) {
      if (document.activeElement !== byId(name)) byId(name).value = setting[name];
    }
    for (const name of ["mode", "video", "overlay"]) byId(name).value = setting[name];
    byId("video_on_floor").checked = setting.video_on_floor;
    byId("speed").value = Math.log2(setting.speed);
    byId("speed").parentElement.querySelector("output").textContent =
      `${setting.speed.toFixed(1)} ×, ${(setting.speed * this.rate).toFixed(0)}/s`;
    for (const name of COLORS) {
      byId(name).value = setting[name] || "#808080";
      byId(name).classList.toggle("unset", !setting[name]);
      const hue = byId(`${name}-hue`);
      if (document.activeElement !== hue) hue.value = setting[name] ? hueOf(setting[name]) : 0;
      hue.parentElement.querySelector("output").textContent = setting[name] || "own";
    }
    for (const label of document.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== setting.mode;
  }
}

function options(select, entries) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
}

function hueColor(hue) {
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (0.5 - 0.42 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return `#${[0, 8, 4].map((n) => channel(n).toString(16).padStart(2, "0")).join("")}`;
}

function hueOf(color) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(color.slice(k, k + 2), 16));
  const high = Math.max(r, g, b);
  const spread = high - Math.min(r, g, b);
  if (!spread) return 0;
  const hue = high === r ? ((g - b) / spread) % 6 : high === g ? (b - r) / spread + 2 : (r - g) / spread + 4;
  return Math.round(60 * hue + 360) % 360;
}
