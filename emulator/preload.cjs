// Points the official SDK and CLI at an emulator, for Node.js:
//
//   SANDGATE_EMULATOR_URL=http://127.0.0.1:8799 NODE_OPTIONS="--require /path/to/preload.cjs" sandbox list …
//
// Calls to vercel.com and its subdomains go to the emulator instead, and so does the probe of a terminal's host,
// which is always https without a port.  Everything else is left alone.
"use strict";

const emulator = process.env.SANDGATE_EMULATOR_URL;
const original = globalThis.fetch;

function elsewhere(url) {
  const vercel = url.hostname === "vercel.com" || url.hostname.endsWith(".vercel.com");
  const probe = url.protocol === "https:" && url.pathname === "/health";
  return vercel || probe ? new URL(url.pathname + url.search, emulator) : undefined;
}

if (emulator) {
  globalThis.fetch = function fetch(resource, init) {
    const isRequest = resource instanceof Request;
    const target = elsewhere(new URL(isRequest ? resource.url : resource));
    if (!target) return original(resource, init);
    // a dispatcher of another undici release may not fit the one that is built in
    const { dispatcher, ...rest } = init ?? {};
    return original(isRequest ? new Request(target, resource) : target, rest);
  };
}
