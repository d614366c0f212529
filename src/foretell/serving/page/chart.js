'use strict';

const WINDOW_S = 120;
/** A pause between two points that is no line. */
const GAP_S = 6;
/** Fewer drafts than these say too little for a point; they count for the next one. */
const MIN_DRAFTS = 8;

const NOTHING = { drafts: 0, tokens: [], drafted: [], accepted: [] };

/** Acceptance between successive looks at the counters of one class, or of all: now, not the mean since the start. */
class Recent {
  constructor() {
    this.before = null;
    this.byDepth = [];
    this.overall = [];
  }

  /** `now`: counts as in status.js. `isUnseen`: nobody looked for a while, so that what came since is not of now. */
  take(now, time, isUnseen) {
    if (isUnseen) this.before = now;
    else if (!this.before || now.drafts < this.before.drafts) this.before = NOTHING;  // a new class, or another server
    if (now.drafts - this.before.drafts < MIN_DRAFTS) return;
    const added = (name) => now[name].map((value, i) => value - (this.before[name][i] ?? 0));
    const [tokens, drafted, accepted] = ['tokens', 'drafted', 'accepted'].map(added);
    this.overall.push({ time, share: tokens[1] / tokens[0] });
    drafted.forEach((number, i) => {
      this.byDepth[i] ??= [];
      if (number >= MIN_DRAFTS / 2) this.byDepth[i].push({ time, share: accepted[i] / number });
    });
    this.before = now;
  }

  forget(time) {
    for (const points of [this.overall, ...this.byDepth]) {
      while (points.length && time - points[0].time > WINDOW_S) points.shift();
    }
  }
}

const NUM_STYLES = 6;

function drawn(tag, attributes, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/** Lines of [name, points] over the last two minutes, and what they are and say now as text. */
function drawChart(box, series, time, empty) {
  const shown = series.filter(([, points]) => points.length);
  const [width, height, left, bottom] = [Math.max(200, box.clientWidth), 132, 26, 18];
  const x = (at) => left + (width - left - 6) * (1 - (time - at) / WINDOW_S);
  const y = (share) => 6 + (height - bottom - 6) * (1 - share);
  const label = shown.map(([name, points]) => `${name} ${points.at(-1).share.toFixed(2)}`).join(', ') || empty;
  const svg = drawn('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label });
  for (const share of [0, 0.5, 1]) {
    svg.append(drawn('line', { class: 'grid', x1: left, x2: width - 6, y1: y(share), y2: y(share) }));
    svg.append(drawn('text', { x: left - 6, y: y(share) + 4, 'text-anchor': 'end' }, String(share)));
  }
  svg.append(drawn('text', { x: left, y: height - 3 }, '2 min ago'));
  svg.append(drawn('text', { x: width - 6, y: height - 3, 'text-anchor': 'end' }, 'now'));
  if (!shown.length) {
    svg.append(drawn('text', { x: (left + width) / 2, y: y(0.75) + 4, 'text-anchor': 'middle' }, empty));
  }
  const legend = element('ul', 'series');
  shown.forEach(([name, points], i) => {
    const style = `line${i % NUM_STYLES}`;
    const isApart = (k) => !points[k - 1] || !points[k] || points[k].time - points[k - 1].time > GAP_S;
    let path = '';
    points.forEach(({ time: at, share }, k) => {
      path += `${isApart(k) ? 'M' : 'L'}${x(at).toFixed(1)} ${y(share).toFixed(1)}`;
      const isDot = k === points.length - 1 || (isApart(k) && isApart(k + 1));
      if (isDot) svg.append(drawn('circle', { class: `dot ${style}`, cx: x(at), cy: y(share), r: 2.5 }));
    });
    svg.append(drawn('path', { class: `series-line ${style}`, d: path }));
    const item = legend.appendChild(element('li'));
    const sample = drawn('svg', { width: 22, height: 8, 'aria-hidden': 'true' });
    sample.append(drawn('path', { class: `series-line ${style}`, d: 'M1 4H21' }));
    item.append(sample, `${name} `, element('b', '', points.at(-1).share.toFixed(2)));
  });
  box.replaceChildren(svg, legend);
}
