'use strict';

/** Tokens a second from the first ones on: the wait for those is the prompt's, and is told apart. */
class Clock {
  constructor() {
    this.asked = performance.now();
    this.numFirst = this.number = 0;
  }

  take(number) {
    this.last = performance.now();
    if (!this.number) [this.first, this.numFirst] = [this.last, number];
    this.number += number;
  }

  get rate() {
    const seconds = (this.last - this.first) / 1000;
    return seconds > 0 ? (this.number - this.numFirst) / seconds : null;
  }

  get wait() {
    return (this.first - this.asked) / 1000;
  }
}

/** One answer as it comes, with a line of figures under it. `finish` is null until it ended by itself. */
class Answer {
  constructor(parent, isPlain) {
    this.box = parent.appendChild(element('div', isPlain ? 'answer plain' : 'answer'));
    this.tokens = new Tokens(this.box);
    this.figures = this.box.appendChild(element('p', 'figures'));
    this.text = '';
    this.list = [];
    this.finish = this.usage = null;
  }

  /** Raises Problem. `onTokens` hears of every change. */
  async run(path, body, signal, onTokens = () => {}) {
    this.clock = new Clock();
    this.box.setAttribute('aria-busy', 'true');
    try {
      for await (const event of events(path, body, signal)) {
        this.take(event);
        onTokens();
      }
    } finally {
      this.tokens.end();
      this.box.removeAttribute('aria-busy');
      this.figures.textContent = this.clock.number ? this.summary() : '';
    }
  }

  take(event) {
    this.usage = event.usage ?? this.usage;
    for (const choice of event.choices) {
      this.text += choice.delta ? choice.delta.content ?? '' : choice.text;
      this.finish = choice.finish_reason ?? this.finish;
      const tokens = choice.speculative?.tokens ?? [];
      if (!tokens.length) continue;
      this.clock.take(tokens.length);
      for (const token of tokens) {
        this.list.push(token);
        this.tokens.add(token);
      }
      this.figures.textContent = this.speed();
    }
  }

  speed() {
    const { number, rate } = this.clock;
    return rate === null ? count(number, 'token') : `${count(number, 'token')}, ${rate.toFixed(1)} tokens/s`;
  }

  summary() {
    const parts = [this.speed(), `first after ${this.clock.wait.toFixed(2)} s`];
    const drafts = this.usage?.speculative;
    if (drafts?.num_drafts) {
      const perPass = this.usage.completion_tokens / drafts.num_passes;
      const byDepth = drafts.acceptance_by_depth.map((share) => share.toFixed(2)).join(' ');
      parts.push(`${perPass.toFixed(2)} tokens a pass`, `accepted by depth ${byDepth}`);
    } else if (drafts) {
      parts.push('nothing drafted');
    }
    if (this.finish === 'length') parts.push('cut off at the limit');
    if (this.finish === null) parts.push('stopped');
    return parts.join(', ');
  }
}

/** Where two texts part, and how near the two tokens were to each other. */
function parting(plain, drafted) {
  const at = plain.findIndex((token, i) => token.id !== drafted[i]?.id);
  const [one, other] = [plain[at], drafted[at]];
  if (!one || !other) return 'The texts part at the end of one of them. ';
  const percent = ({ probability }) => `${(100 * probability).toFixed(2)} %`;
  return `The texts part at token ${at + 1}, of which the model gave ${percent(one)} to plain decoding’s and ` +
    `${percent(other)} to the other. Where two nearly tie, rounding decides; foretell verify shows the gap. `;
}

/** The same prompt plain and drafted, greedy, one after the other; how they compare is said once both are done. */
class Race {
  constructor(parent, drafting) {
    const box = parent.appendChild(element('div', 'race'));
    const lanes = box.appendChild(element('div', 'lanes'));
    this.lanes = [['Plain', true], [`Drafted, ${drafting}`, false]].map(([name, isPlain]) => {
      const lane = lanes.appendChild(element('section', isPlain ? 'lane' : 'lane drafted'));
      lane.append(element('h3', '', name));
      const shown = lane.appendChild(element('p', 'rate', '–'));
      const bar = lane.appendChild(element('div', 'track')).appendChild(element('div', 'bar'));
      return { shown, bar, answer: new Answer(lane, isPlain) };
    });
    this.verdict = box.appendChild(element('p', 'verdict', 'Plain first, then drafted: at once they would share the machine.'));
  }

  async run(path, bodies, signal, onTokens) {
    for (const [i, { answer }] of this.lanes.entries()) {
      await answer.run(path, bodies[i], signal, () => {
        this.show();
        onTokens();
      });
    }
    this.judge();
  }

  show() {
    const rates = this.lanes.map(({ answer }) => answer.clock?.rate ?? 0);
    for (const [i, { shown, bar }] of this.lanes.entries()) {
      if (rates[i]) shown.replaceChildren(rates[i].toFixed(1), element('small', '', ' tokens/s'));
      bar.style.width = `${100 * rates[i] / Math.max(...rates, 1e-9)}%`;
    }
  }

  judge() {
    const [plain, drafted] = this.lanes.map(({ answer }) => answer);
    const isRated = plain.clock.rate && drafted.clock.rate;
    const ratio = isRated ? `Drafted is ${(drafted.clock.rate / plain.clock.rate).toFixed(2)}× as fast. ` : '';
    this.verdict.replaceChildren(
      element('strong', '', ratio),
      plain.text === drafted.text ? `Both texts are equal, all ${count(plain.list.length, 'token')}. ` : parting(plain.list, drafted.list),
      element('small', '', 'One run each, one after the other, at temperature 0; the wait for the first token is left out.'),
    );
  }
}
