"""What the benchmarks run against: emulator, gateway, nginx and one sandbox, on loopback."""
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SANDGATE_BUILD", ROOT / "build" / "release"))
CACHE = pathlib.Path(os.environ.get("SANDGATE_CACHE", "/var/cache/sandgate" if os.geteuid() == 0
                                    else os.path.expanduser("~/.cache/sandgate")))
EMULATOR = BUILD / "emulator" / "sandgate-emulator"
GATEWAY = BUILD / "server" / "sandgate"
WSLOAD = BUILD / "bench" / "wsload"
LWS_SERVER = BUILD / "bench" / "lws_server"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Stack:
    """Emulator, gateway and nginx, with one sandbox in it."""

    def __init__(self, work, *emulator_options):
        self.work, self.children = pathlib.Path(work), []
        self.work.mkdir(exist_ok=True)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
        subprocess.run(["ninja", "-C", BUILD, "bench/wsload", "bench/lws_server"], check=True,
                       stdout=subprocess.DEVNULL)
        tar = CACHE / "base.tar"
        subprocess.run([ROOT / "emulator/base/make-base", tar], check=True)
        state = self.work / "state"
        subprocess.run([EMULATOR, "import-base", "--state", state, tar], check=True, stderr=subprocess.DEVNULL)
        emu = self.start([EMULATOR, "--listen", "127.0.0.1:0", "--state", state, "--json",
                          *emulator_options], "emulator", stdout=subprocess.PIPE)
        ready = json.loads(emu.stdout.readline())
        self.emulator, self.emulator_token = ready["url"].split("//")[1].rstrip("/"), ready["token"]
        tokens = self.work / "tokens"
        made = subprocess.run([GATEWAY, "token", "create", "--name", "bench", "--tokens", tokens], check=True,
                              capture_output=True, text=True).stdout
        self.token = re.search(r"sgt_\w+", made)[0]
        secret = self.work / "upstream-token"
        secret.write_text(self.emulator_token)
        secret.chmod(0o600)
        port = free_port()
        self.gateway = f"127.0.0.1:{port}"
        config = self.work / "sandgate.ini"
        config.write_text(f"[server]\nlisten = {self.gateway}\nlog_level = warn\n"
                          f"max_websockets = 12000\nmax_connections = 14000\n[auth]\ntokens_file = {tokens}\n"
                          f"[store]\nstate_file = {self.work}/gateway.db\n"
                          f"[upstream]\nurl = http://{self.emulator}\ntoken_file = {secret}\nteam_id = team_bench\n"
                          f"project_id = prj_bench\n")
        self.gateway_argv = [GATEWAY, "serve", "--config", config]
        self.gateway_child = self.start(self.gateway_argv, "gateway")
        wait_port(port)
        nginx_port = free_port()
        self.nginx = f"127.0.0.1:{nginx_port}"
        conf = self.work / "nginx.conf"
        conf.write_text(f"daemon off; worker_processes 1; pid {work}/nginx.pid; error_log {work}/nginx.log;\n"
                        "events { worker_connections 2048; }\nhttp { access_log off;\n"
                        f" client_body_temp_path {work}/b; proxy_temp_path {work}/p; fastcgi_temp_path {work}/f;"
                        f" uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;\n"
                        f" upstream e {{ server {self.emulator}; keepalive 256; }}\n"
                        f" server {{ listen {self.nginx}; keepalive_requests 10000000;\n"
                        "  location / { proxy_pass http://e; proxy_http_version 1.1;"
                        " proxy_set_header Connection \"\"; proxy_set_header Host $http_host; } } }\n")
        self.start(["nginx", "-c", conf, "-p", work], "nginx")
        wait_port(nginx_port)
        self.call(self.gateway, self.token, "POST", "/v1/sandboxes", {"name": "bench"})
        record = self.call(self.gateway, self.token, "GET", "/v1/sandboxes/bench")
        self.session = record["session_id"]

    def start(self, argv, name, **options):
        log = open(self.work / f"{name}.log", "w")
        child = subprocess.Popen([str(a) for a in argv], stderr=log, **{"stdout": log, **options})
        self.children.append(child)
        return child

    def restart_gateway(self):
        """As a crash does it: killed, and started again at the same place."""
        self.gateway_child.kill()
        self.gateway_child.wait()
        self.gateway_child = self.start(self.gateway_argv, "gateway")
        wait_port(int(self.gateway.split(":")[1]))

    def memory(self):
        """Resident bytes of the gateway: now, and at most since clear_peak."""
        text = pathlib.Path(f"/proc/{self.gateway_child.pid}/status").read_text()
        return tuple(int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) * 1024 for key in ("VmRSS", "VmHWM"))

    def clear_peak(self):
        pathlib.Path(f"/proc/{self.gateway_child.pid}/clear_refs").write_text("5")

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.gateway_child.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def api(self, method, path, body=None, connection=None):
        return self.call(self.gateway, self.token, method, "/v1/sandboxes/bench" + path, body, connection)

    def call(self, host, token, method, path, body=None, connection=None):
        conn = connection or http.client.HTTPConnection(host, timeout=120)
        conn.request(method, path, json.dumps(body) if body is not None else None,
                     {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
        answer = conn.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]}")
        return json.loads(data) if answer.getheader("Content-Type", "").startswith("application/json") else data

    def stop(self):
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def wait_port(port):
    end = time.monotonic() + 15
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port}")


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]
