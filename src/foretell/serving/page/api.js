'use strict';

/** What the server refused or could not do; `code` as in its errors. */
class Problem extends Error {
  constructor(message, code = null) {
    super(message);
    this.code = code;
  }
}

const KEY = 'foretell api key';
try {
  $('key').value = sessionStorage.getItem(KEY) ?? '';
} catch { /* storage is off: the key lasts as long as the page */ }
$('key').addEventListener('change', () => {
  try {
    sessionStorage.setItem(KEY, $('key').value);
  } catch { /* as above */ }
});

/** A successful response, or a Problem with the server's own words. */
async function send(path, body = null, signal = null) {
  const headers = { 'Content-Type': 'application/json' };
  const key = $('key').value.trim();
  if (!/^[ -~]*$/.test(key)) throw new Problem('the API key has characters that no key can have', 'invalid_api_key');
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    const post = body && { method: 'POST', body: JSON.stringify(body) };
    response = await fetch(path, { headers, signal, ...post });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem('the server cannot be reached', 'no_connection');
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Problem(said.error?.message ?? `the server answered ${response.status}`, said.error?.code);
}

/** Data of server-sent events, until [DONE]. */
async function* events(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw error.name === 'AbortError' ? error : new Problem('the connection broke off', 'no_connection');
      });
      if (done) throw new Problem('the answer broke off before its end');
      const parts = (rest + value).split('\n\n');
      rest = parts.pop();
      for (const part of parts) {
        const data = part.slice('data: '.length);
        if (data === '[DONE]') return;
        const event = JSON.parse(data);
        if (event.error) throw new Problem(event.error.message, event.error.code);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
