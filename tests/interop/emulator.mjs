// An emulator of its own for each test file: private port and state directory, stopped at the end.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export async function startEmulator() {
  const program = process.env.SANDGATE_EMULATOR;
  const base = process.env.SANDGATE_TEST_BASE;
  if (!program || !base) throw new Error("SANDGATE_EMULATOR and SANDGATE_TEST_BASE must be set");
  const state = await mkdtemp(join(tmpdir(), "sandgate-interop-"));
  const child = spawn(
    program,
    ["serve", "--listen", "127.0.0.1:0", "--state", state, "--base-from", base, "--json",
      `--die-with-parent=${process.pid}`],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
  const ready = await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once("line", (line) => resolve(JSON.parse(line)));
    ended.then((how) => reject(new Error(`the emulator ended before it was ready: ${JSON.stringify(how)}`)));
  });
  const options = {
    token: ready.token,
    teamId: "team_local",
    projectId: "prj_local",
    fetch: (url, init) => fetch(String(url).replace("https://vercel.com", ready.url), init),
  };
  const stop = async () => {
    child.kill("SIGTERM");
    const how = await ended;
    await rm(state, { recursive: true, force: true });
    return how;
  };
  return { ...ready, options, stop };
}
