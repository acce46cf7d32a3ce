// Run by hostless.test.mjs in a network and mount namespace of its own, where vercel.com is this machine: the official
// SDK and CLI as anybody installs them, without a hook of any kind, against an emulator with TLS on port 443.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cliEnvironment, cliHome, runCli } from "./cli.mjs";
import { newState, startEmulator } from "./emulator.mjs";
import { rm } from "node:fs/promises";

const cliScript = fileURLToPath(new URL("node_modules/sandbox/bin/sandbox.mjs", import.meta.url));
const state = await newState();
const place = await cliHome();

async function pass(args, trusted, names) {
  const emulator = await startEmulator({ state, args });
  const env = cliEnvironment(place.home, {
    NODE_EXTRA_CA_CERTS: trusted, VERCEL_AUTH_TOKEN: emulator.token, SANDGATE_PUBLIC_NAMES: names,
  });
  const script = fileURLToPath(new URL("hostless-sdk.mjs", import.meta.url));
  const sdk = spawnSync(process.execPath, [script], { env, cwd: place.work, encoding: "utf8", timeout: 60_000 });
  assert.equal(sdk.status, 0, sdk.stdout + sdk.stderr);

  const cli = (...argv) => runCli(argv, { env, cwd: place.work });
  const created = await cli("create", "--name", "plain");
  assert.equal(created.code, 0, created.stderr);
  assert.equal(created.stdout.trim(), "plain");
  const failing = await cli("exec", "plain", "--", "sh", "-c", "echo here; exit 5");
  assert.deepEqual([failing.code, failing.stdout], [5, "here\n"]);
  assert.match((await cli("list")).stdout, /plain\s+running/);
  const typed = spawnSync("script", ["-qefc", `stty cols 80 rows 24; exec ${process.execPath} ${cliScript} exec -i plain -- sh -c 'tty >/dev/null && exit 6'`,
    "/dev/null"], { env: { ...env, TERM: "xterm" }, cwd: place.work, input: "", encoding: "utf8", timeout: 60_000 });
  assert.equal(typed.status, 6, typed.stdout + typed.stderr);
  assert.equal((await cli("rm", "plain")).code, 0);
  assert.deepEqual(await emulator.stop(), { code: 0, signal: null });
}

// The edge: one listener for the API and for the sandboxes' public names, with the emulator's own authority.
await pass(["--edge-tls", "127.0.0.1:443", "--edge-api-hosts", "vercel.com,api.vercel.com,telemetry.vercel.com"],
  join(state, "ca", "ca.pem"), "yes");
// A certificate of one's own, API only.
const { CERTIFICATE, CERTIFICATE_KEY } = process.env;
await pass(["--tls-listen", "127.0.0.1:443", "--tls-cert", CERTIFICATE, "--tls-key", CERTIFICATE_KEY], CERTIFICATE, "");
await place.remove();
await rm(state, { recursive: true, force: true });
console.log("passed");
