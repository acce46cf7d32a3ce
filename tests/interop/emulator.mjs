// An emulator of its own for each test file: private port and state directory, stopped at the end.
import { spawn } from "node:child_process";
import { chown, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export const program = process.env.SANDGATE_EMULATOR;
export const base = process.env.SANDGATE_TEST_BASE;

export async function newState() {
  const dir = await mkdtemp(join(tmpdir(), "sandgate-interop-"));
  const uid = Number(process.env.SANDGATE_EMULATOR_UID ?? 0); // the emulator may run as somebody else
  if (uid) await chown(dir, uid, uid);
  return dir;
}

// With `state`, that directory is used and kept; otherwise a fresh one that stop() removes.
export async function startEmulator({ args = [], state, base: from = base } = {}) {
  if (!program || !from) throw new Error("SANDGATE_EMULATOR and SANDGATE_TEST_BASE must be set");
  const dir = state ?? (await newState());
  const child = spawn(
    program,
    ["serve", "--listen", "127.0.0.1:0", "--state", dir, "--base-from", from, "--json",
      `--die-with-parent=${process.pid}`, ...args],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
  const ready = await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once("line", (line) => resolve(JSON.parse(line)));
    ended.then((how) => reject(new Error(`the emulator ended before it was ready: ${JSON.stringify(how)}`)));
  });
  const expected = process.env.SANDGATE_EXPECT_TIER;
  if (expected && ready.tier !== expected) throw new Error(`tier ${ready.tier} instead of ${expected}`);
  const options = {
    token: ready.token,
    teamId: "team_local",
    projectId: "prj_local",
    fetch: (url, init) => fetch(String(url).replace("https://vercel.com", ready.url), init),
  };
  // One call of the API: status and parsed body.
  const call = async (method, path, body) => {
    const response = await fetch(ready.url + path, {
      method,
      headers: { authorization: `Bearer ${ready.token}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    const type = response.headers.get("content-type") ?? "";
    return { status: response.status, type, text, json: type.startsWith("application/json") ? JSON.parse(text) : undefined };
  };
  const kill = async (signal) => {
    child.kill(signal);
    return ended;
  };
  const stop = async () => {
    const how = await kill("SIGTERM");
    if (!state) await rm(dir, { recursive: true, force: true });
    return how;
  };
  return { ...ready, state: dir, options, call, kill, stop };
}
