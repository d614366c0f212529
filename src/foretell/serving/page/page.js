'use strict';

/** Turns of the conversation that are done: [{role, content}]. */
let turns = [];
/** AbortController of what runs; null while nothing does. */
let running = null;
/** False once the server said that its model has no chat template. */
let isChat = true;

const policy = () => document.querySelector('input[name=policy]:checked')?.value ?? 'auto';

function setControls(status) {
  const { depth, fixed_depth: fixed } = status.policy;
  const deepest = status.policy.max_depth ?? Math.max(8, fixed);
  $('max-tokens').value = Math.min(256, Math.floor(status.window / 2));
  $('depth').max = deepest;
  $('depth').value = fixed || Math.min(3, deepest);
  const radios = document.querySelectorAll('input[name=policy]');
  for (const radio of radios) {
    radio.checked = radio.value === (depth === 'auto' ? 'auto' : depth === 0 ? 'off' : 'fixed');
    radio.disabled = radio.value === 'auto' ? depth === 0 : radio.value === 'fixed' && status.drafter === null;
    if (radio.disabled) radio.parentElement.title = status.why_plain;
  }
  showDepth();
  $('race').disabled = $('depth').disabled = status.drafter === null;
  if (status.drafter === null) $('race').title = status.why_plain;
}

function showDepth() {
  $('depth-shown').textContent = { auto: 'auto', fixed: $('depth').value, off: '0' }[policy()];
}

function speculative(name) {
  return name === 'fixed' ? { policy: name, depth: Number($('depth').value), details: true } : { policy: name, details: true };
}

function request(messages, name, isGreedy) {
  const said = messages.at(-1).content;
  const system = $('system').value ? [{ role: 'system', content: $('system').value }] : [];
  const number = (id) => (Number.isNaN($(id).valueAsNumber) ? null : $(id).valueAsNumber);
  return {
    ...(isChat ? { messages: [...system, ...messages] } : { prompt: said }),
    max_tokens: number('max-tokens'),
    temperature: isGreedy ? 0 : number('temperature'),
    stream: true,
    stream_options: { include_usage: true },
    speculative: speculative(name),
  };
}

/** Pixels of the conversation's end that the composer covers. */
const covered = () => $('end').getBoundingClientRect().top - $('composer').getBoundingClientRect().top;

/** Keep the newest tokens in sight, unless the reader scrolled up. */
let following = true;
function follow() {
  if (following && covered() > 0) scrollBy(0, covered());
}
addEventListener('scroll', () => { following = covered() < 40; }, { passive: true });

function setRunning(controller) {
  running = controller;
  $('stop').hidden = !controller;
  $('send').hidden = Boolean(controller);
  const [next, ...gone] = controller ? ['stop', 'send', 'race'] : ['send', 'stop'];
  if (gone.some((id) => document.activeElement === $(id))) $(next).focus();
  $('race').disabled = Boolean(controller) || known?.drafter === null;
}

/** One turn: `run(box, messages, signal)` answers, and returns the text that becomes part of the conversation. */
async function turn(said, run, earlier = turns) {
  $('hello')?.remove();
  hideCard();
  const messages = [...earlier, { role: 'user', content: said }];
  const box = $('talk').appendChild(element('article', 'turn'));
  box.append(element('h2', 'unseen', 'You'), element('p', 'said', said), element('h2', 'unseen', 'Answer'));
  const controller = new AbortController();
  setRunning(controller);
  following = true;
  follow();
  try {
    let text;
    try {
      text = await run(box, messages, controller.signal);
    } catch (error) {
      if (error.code !== 'no_template' || !isChat) throw error;
      setTextMode();
      box.querySelector('.answer, .race').remove();
      text = await run(box, messages, controller.signal);
    }
    if (text && box.isConnected) turns = [...messages, { role: 'assistant', content: text }];
  } catch (error) {
    explain(box, error);
    if (!$('prompt').value) $('prompt').value = said;
  } finally {
    setRunning(null);
    follow();
    poll();
  }
}

function explain(box, error) {
  const words = error instanceof Problem ? error.message : `this page failed: ${error.message}`;
  const line = element('p', 'problem', words);
  line.setAttribute('role', 'alert');
  box.append(line);
  if (error.code === 'invalid_api_key') {
    $('settings').open = true;
    $('key').focus();
  }
}

function setTextMode() {
  isChat = false;
  $('prompt-label').textContent = 'Text to continue';
  $('prompt').placeholder = 'Text to continue: this model has no chat template, so each prompt stands alone';
}

const path = () => (isChat ? '/v1/chat/completions' : '/v1/completions');
const ended = (error) => {
  if (error.name !== 'AbortError') throw error;
};

async function answerTurn(box, messages, signal) {
  const answer = new Answer(box, policy() === 'off');
  await answer.run(path(), request(messages, policy(), false), signal, follow).catch(ended);
  return answer.text;
}

async function raceTurn(box, messages, signal) {
  const isAuto = policy() === 'auto' || (policy() === 'off' && known?.policy.depth !== 0);
  const race = new Race(box, isAuto ? 'as deep as pays' : `depth ${$('depth').value}`);
  const bodies = ['off', isAuto ? 'auto' : 'fixed'].map((name) => request(messages, name, true));
  await race.run(path(), bodies, signal, follow).catch(ended);
  return race.lanes[1].answer.text || race.lanes[0].answer.text;
}

/** The composer's text, which is taken; empty while an answer comes. */
function taken() {
  const said = running || !$('prompt').value.trim() ? '' : $('prompt').value;
  if (said) $('prompt').value = '';
  return said;
}

$('composer').addEventListener('submit', (submit) => {
  submit.preventDefault();
  const said = taken();
  if (said) turn(said, answerTurn);
});
$('race').addEventListener('click', () => {
  const said = taken();
  if (said) turn(said, raceTurn);
  else if (turns.length) turn(turns.at(-2).content, raceTurn, turns.slice(0, -2));  // the last question once more
  else $('prompt').focus();
});
$('prompt').addEventListener('keydown', (press) => {
  if (press.key !== 'Enter' || press.shiftKey || press.isComposing) return;
  press.preventDefault();
  $('composer').requestSubmit();
});
$('stop').addEventListener('click', () => running?.abort());
document.addEventListener('keydown', (press) => {
  if (press.key !== 'Escape') return;
  hideCard();
  running?.abort();
});
$('depth').addEventListener('input', () => {
  document.querySelector('input[name=policy][value=fixed]').checked = true;
  showDepth();
});
$('policy').addEventListener('change', showDepth);
$('examples').addEventListener('click', ({ target }) => {
  if (target.tagName !== 'BUTTON') return;
  $('prompt').value = target.textContent;
  $('prompt').focus();
});
$('clear').addEventListener('click', () => {
  running?.abort();
  turns = [];
  $('talk').replaceChildren();
  $('prompt').focus();
});
$('class').addEventListener('change', poll);
$('key').addEventListener('change', poll);
document.addEventListener('visibilitychange', poll);

pollForever();
