// The full pass without hooks: see hostless.mjs.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { newState } from "./emulator.mjs";

let dir;
before(async () => {
  dir = await newState();
});
after(() => rm(dir, { recursive: true, force: true }));

test("SDK and CLI as they are, against https://vercel.com on this machine", async () => {
  const names = ["vercel.com", "api.vercel.com", "telemetry.vercel.com"];
  await writeFile(join(dir, "hosts"), `127.0.0.1 localhost ${names.join(" ")}\n`);
  const certificate = join(dir, "cert.pem");
  const key = join(dir, "key.pem");
  const made = spawnSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
    "-days", "2", "-subj", "/CN=vercel.com", "-addext", `subjectAltName=${names.map((n) => `DNS:${n}`).join(",")}`,
    "-keyout", key, "-out", certificate], { encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
  // an unprivileged user needs a user namespace around the others
  const namespaces = process.getuid() === 0 ? ["-m", "-n"] : ["-m", "-n", "-r"];
  const inside = spawnSync("unshare", [...namespaces, "sh", "-c",
    'mount --bind "$1" /etc/hosts && ip link set lo up && exec "$2" "$3"', "sh", join(dir, "hosts"), process.execPath,
    fileURLToPath(new URL("hostless.mjs", import.meta.url))],
    { encoding: "utf8", timeout: 150_000, env: { ...process.env, CERTIFICATE: certificate, CERTIFICATE_KEY: key } });
  assert.equal(inside.status, 0, inside.stdout + inside.stderr);
  assert.match(inside.stdout, /passed/);
});
