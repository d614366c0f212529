'use strict';

const POLL_MS = 1000;
/** A tab that was hidden for longer begins anew. */
const LATE_S = 10;
const MAX_ROWS = 12;
const all = new Recent();
const ofClass = new Map();
let lastTime = null;
let isPolling = false;

/** What /v1/status said last; page.js reads it. */
let known = null;

/** Of one class: rounds that drafted, tokens drafted and accepted, and both by depth. */
const counted = (counts) => ({
  drafts: counts.num_drafts,
  tokens: [counts.num_draft_tokens, counts.num_accepted_tokens],
  drafted: counts.num_draft_tokens_per_pos,
  accepted: counts.num_accepted_tokens_per_pos,
});

function added(parts) {
  const total = { drafts: 0, tokens: [], drafted: [], accepted: [] };
  for (const part of parts) {
    total.drafts += part.drafts;
    for (const name of ['tokens', 'drafted', 'accepted']) {
      part[name].forEach((value, i) => { total[name][i] = (total[name][i] ?? 0) + value; });
    }
  }
  return total;
}

function drawAcceptance(status) {
  const time = performance.now() / 1000;
  const parts = Object.entries(status.classes).map(([name, counts]) => [name, counted(counts)]);
  const isUnseen = lastTime === null || time - lastTime > LATE_S;
  lastTime = time;
  all.take(added(parts.map(([, part]) => part)), time, isUnseen);
  for (const [name, part] of parts) {
    if (!ofClass.has(name)) ofClass.set(name, new Recent());
    ofClass.get(name).take(part, time, isUnseen);
  }
  for (const recent of [all, ...ofClass.values()]) recent.forget(time);
  const select = $('class');
  const names = [...ofClass.keys()].sort();
  if (select.length !== names.length + 1) {
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...names.map((name) => new Option(name, name)));
    select.value = chosen;
  }
  const { byDepth } = select.value ? ofClass.get(select.value) : all;
  const idle = status.drafter === null ? 'this server drafts nothing' : 'nothing drafted just now';
  drawChart($('by-depth'), byDepth.map((points, i) => [`depth ${i + 1}`, points ?? []]), time, idle);
  drawChart($('by-class'), names.map((name) => [name, ofClass.get(name).overall]), time, idle);
}

function listClasses(classes) {
  const rows = Object.entries(classes).sort(([, a], [, b]) => b.num_passes - a.num_passes);
  $('classes').hidden = !rows.length;
  $('classes').tBodies[0].replaceChildren(...rows.slice(0, MAX_ROWS).map(([name, counts]) => {
    const row = element('tr');
    const head = element('th', '', name);
    head.scope = 'row';
    const speed = counts.speedup === null ? 'not known yet' : `${counts.speedup.toFixed(2)}×`;
    row.append(
      head,
      element('td', '', counts.num_passes.toLocaleString('en')),
      element('td', '', counts.tokens_per_pass.toFixed(2)),
      element('td', '', counts.is_gated ? 'plain is faster' : speed),
    );
    return row;
  }));
}

function describe(status) {
  const { policy, heads } = status;
  const depth = policy.depth === 'auto' ? 'as deep as pays' : `depth ${policy.depth}`;
  const what = heads && status.drafter === 'heads' ? `${heads.kind} heads, trained to depth ${heads.num_depths}` : status.drafter;
  $('what').replaceChildren(element('b', '', status.model), ` ${status.why_plain ?? `drafted for by ${what}; ${depth}`}`);
  const isBusy = status.num_running + status.num_waiting > 0;
  const busy = `${status.num_running} of ${status.max_batch} running, ${status.num_waiting} waiting`;
  setState(status.status === 'ok' ? (isBusy ? busy : 'ready') : status.status, status.status !== 'ok');
}

function setState(text, isBad) {
  $('state').classList.toggle('bad', isBad);
  if ($('state').textContent !== text) $('state').textContent = text;
}

/** One look at a time: an answer that overtakes another would look like counters that run backwards. */
async function poll() {
  if (document.hidden || isPolling) return;
  isPolling = true;
  try {
    const status = await (await send('/v1/status')).json();
    const isNew = known === null;
    known = status;
    if (isNew) setControls(status);
    describe(status);
    drawAcceptance(status);
    listClasses(status.classes);
  } catch (error) {
    if (error.code === 'invalid_api_key') setState('needs an API key: see Settings', true);
    else setState(error instanceof Problem ? error.message : String(error), true);
  } finally {
    isPolling = false;
  }
}

async function pollForever() {
  for (;;) {
    await poll();
    await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
  }
}
