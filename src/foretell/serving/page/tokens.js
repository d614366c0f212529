'use strict';

const ORIGINS = {
  accepted: (token) => `accepted draft, depth ${token.depth}`,
  bonus: () => 'bonus: the model’s own, after a draft that was right to its end',
  recovered: () => 'recovered: the model’s own, where a draft was wrong or there was none',
};

/** The tokens of one answer. A character whose bytes come in several tokens appears with the last of them. */
class Tokens {
  constructor(parent) {
    this.box = parent.appendChild(element('div', 'tokens'));
    this.box.setAttribute('role', 'group');
    this.box.setAttribute('aria-label', 'Answer; the arrow keys go from token to token');
    this.decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    this.waiting = [];
    this.numFences = 0;
    this.tail = '';
  }

  add(token) {
    this.waiting.push(token);
    this.show(this.decoder.decode(new Uint8Array(token.bytes), { stream: true }));
  }

  /** What is left of a character that was cut off. */
  end() {
    this.show(this.decoder.decode());
  }

  show(text) {
    if (!text || !this.waiting.length) return;
    const tokens = this.waiting;
    this.waiting = [];
    const span = element('span', `token ${tokens.at(-1).origin}`, text);
    const before = this.numFences;
    this.countFences(text);
    if (before % 2 || this.numFences > before) span.classList.add('code');
    span.tabIndex = this.box.childElementCount ? -1 : 0;
    span.tokens = tokens;
    this.box.append(span);
  }

  /** Between ``` and ``` text is code. A fence may come in parts. */
  countFences(text) {
    const whole = this.tail + text;
    const found = whole.split('```').length - 1;
    this.numFences += found;
    this.tail = found ? whole.slice(whole.lastIndexOf('```') + 3).slice(-2) : whole.slice(-2);
  }
}

const visible = (text) => text.replaceAll(' ', '␣').replaceAll('\n', '↵').replaceAll('\t', '⇥');

function showCard(span) {
  const card = $('card');
  const lines = span.tokens.map((token) => {
    const percent = 100 * token.probability;
    const shown = percent < 0.1 ? percent.toExponential(0) : percent.toFixed(percent < 99.95 ? 1 : 0);
    const line = element('p', '', `${ORIGINS[token.origin](token)}. The model gave it ${shown} %. `);
    line.append(element('small', '', `token ${token.id}`));
    return line;
  });
  const several = lines.length > 1 ? ` in ${lines.length} tokens` : '';
  card.replaceChildren(element('p', 'named', visible(span.textContent) + several), ...lines);
  card.hidden = false;
  const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = card;
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8));
  const above = at.top - height - 6;
  card.style.left = `${left + scrollX}px`;
  card.style.top = `${(above < 8 ? at.bottom + 6 : above) + scrollY}px`;
  span.setAttribute('aria-describedby', 'card');
}

function hideCard() {
  $('card').hidden = true;
}

const tokenAt = (target) => (target instanceof Element && target.closest('#talk .token')) || null;
for (const kind of ['pointerover', 'focusin', 'click']) {
  document.addEventListener(kind, ({ target }) => {
    const span = tokenAt(target);
    if (span) showCard(span);
    else if (kind !== 'focusin') hideCard();
  });
}
document.addEventListener('focusout', hideCard);
document.addEventListener('keydown', (press) => {
  const span = tokenAt(document.activeElement);
  const steps = { ArrowRight: 'nextElementSibling', ArrowLeft: 'previousElementSibling' };
  const ends = { Home: 'firstElementChild', End: 'lastElementChild' };
  if (!span || !(press.key in steps || press.key in ends)) return;
  const next = press.key in steps ? span[steps[press.key]] : span.parentElement[ends[press.key]];
  press.preventDefault();
  if (!next) return;
  span.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
