"use strict";
/* The record inside a page. */

const VERSION = 1; // of the format of records that this page reads

const byId = (id) => document.getElementById(id);

async function readRecord() {
  const packed = Uint8Array.from(atob(byId("record").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const record = JSON.parse(await new Response(stream).text());
  if (record.version > VERSION) {
    throw new Error(`This record is of version ${record.version} of its format, and the page reads up to ${VERSION}.`);
  }
  return record;
}

/** Read the record and give it to a page; what goes wrong becomes its title. */
function begin(open) {
  readRecord()
    .then(open)
    .then(
      () => {
        document.body.dataset.ready = "true";
      },
      (error) => {
        byId("title").textContent = error.message;
        document.body.dataset.ready = "failed";
      },
    );
}
