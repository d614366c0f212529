'use strict';

/** The element with an id of index.html. */
const $ = (id) => document.getElementById(id);

/** A new element. Text comes in as text, never as HTML. */
function element(tag, className = '', text = '') {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

const count = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
