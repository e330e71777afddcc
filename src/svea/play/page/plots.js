// Small live plots on canvases: a line over the decisions of an episode, and bars of an action.

const MOST_POINTS = 1200;

export class Line {
  constructor(canvas) {
    Object.assign(this, { canvas, values: [] });
  }
  add(values) {
    this.values.push(...values);
    if (this.values.length > MOST_POINTS) this.values.splice(0, this.values.length - MOST_POINTS);
  }
  clear() {
    this.values.length = 0;
    this.draw();
  }
  draw() {
    const { pen, width, height } = surface(this.canvas);
    const known = this.values.filter((value) => value !== null);
    if (known.length < 2) return;
    const low = Math.min(0, ...known);
    const high = Math.max(low + 1e-6, ...known);
    const x = (k) => (k / (this.values.length - 1)) * (width - 2) + 1;
    const y = (value) => height - 3 - ((value - low) / (high - low)) * (height - 6);
    pen.strokeStyle = getComputedStyle(this.canvas).color;
    pen.lineWidth = 1.7;
    pen.lineJoin = "round";
    pen.beginPath();
    let drawing = false;
    this.values.forEach((value, k) => {
      if (value === null) drawing = false;
      else if (drawing) pen.lineTo(x(k), y(value));
      else pen.moveTo(x(k), y(value)), (drawing = true);
    });
    pen.stroke();
  }
}

export class Bars {
  constructor(canvas) {
    Object.assign(this, { canvas, values: [], choices: 0 });
  }
  set(values) {
    this.values = values;
  }
  draw() {
    const { pen, width, height } = surface(this.canvas);
    const style = getComputedStyle(this.canvas);
    pen.fillStyle = style.borderBottomColor;
    pen.fillRect(0, height / 2 - 0.5, width, 1);
    pen.fillStyle = style.color;
    if (this.choices) {
      const wide = width / this.choices;
      pen.fillRect(this.values[0] * wide + 1, 4, Math.max(2, wide - 2), height - 8);
      return;
    }
    const wide = width / Math.max(1, this.values.length);
    this.values.forEach((value, k) => {
      const tall = (value * (height - 6)) / 2;
      pen.fillRect(k * wide + wide * 0.15, height / 2 - Math.max(0, tall), wide * 0.7, Math.max(1, Math.abs(tall)));
    });
  }
}

function surface(canvas) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}
