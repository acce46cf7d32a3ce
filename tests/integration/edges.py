"""What may stand between the gateway and its upstream: TLS with an authority of one's own, an HTTP proxy."""
import select
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.parse

from harness import PATIENCE, Process, clean_env, until


class Authority:
    """A certificate authority made for a test; `ca` is its certificate, `server()` a chain for localhost."""

    def __init__(self, directory, name):
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.ca, self.key = self.directory / "ca.pem", self.directory / "ca.key"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                     "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.ca)

    def openssl(self, *args):
        done = subprocess.run(["openssl", *[str(a) for a in args]], capture_output=True, text=True, timeout=PATIENCE,
                              env=clean_env())
        assert done.returncode == 0, done.stderr

    def server(self, names="DNS:localhost,IP:127.0.0.1"):
        d = self.directory
        if not (d / "server.pem").exists():
            (d / "names").write_text(f"subjectAltName={names}\n")
            self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=server",
                         "-keyout", d / "server.key", "-out", d / "server.csr")
            self.openssl("x509", "-req", "-in", d / "server.csr", "-CA", self.ca, "-CAkey", self.key, "-CAcreateserial",
                         "-days", "2", "-extfile", d / "names", "-out", d / "server.pem")
        return d / "server.pem", d / "server.key"


class Relay:
    """A listener that handles each connection on a thread of its own; ends with everything closed."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.open, self.lock, self.connections = set(), threading.Lock(), 0
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
            threading.Thread(target=self.guard, args=(peer,), daemon=True).start()

    def guard(self, peer):
        try:
            self.handle(peer)
        except (OSError, ValueError):
            pass
        finally:
            peer.close()

    def keep(self, sock):
        with self.lock:
            self.open.add(sock)
        return sock

    def pump(self, a, b):
        """Bytes both ways until one side has ended."""
        self.keep(a), self.keep(b)
        while True:
            pending = [s for s in (a, b) if isinstance(s, ssl.SSLSocket) and s.pending()]
            for s in pending or select.select([a, b], [], [])[0]:
                data = s.recv(65536)
                if not data:
                    b.close()
                    return
                (b if s is a else a).sendall(data)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(PATIENCE)
        with self.lock:
            for s in self.open:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def address(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


class Tls(Relay):
    """Takes TLS off in front of an http:// URL."""

    def __init__(self, chain, url):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*chain)
        self.target = address(url)
        super().__init__()
        self.url = f"https://127.0.0.1:{self.port}"

    def handle(self, peer):
        with self.context.wrap_socket(peer, server_side=True) as tls, socket.create_connection(self.target) as up:
            self.pump(tls, up)


class Proxy(Relay):
    """An HTTP proxy: CONNECT, and absolute-form requests with their bodies passed on; remembers what it was asked."""

    def __init__(self):
        self.asked = []
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"

    def handle(self, peer):
        head = b""
        while b"\r\n\r\n" not in head:
            more = peer.recv(65536)
            if not more:
                return
            head += more
        line, rest = head.split(b"\r\n", 1)
        method, target, version = line.decode().split(" ")
        with self.lock:
            self.asked.append((method, target))
        if method == "CONNECT":
            host, port = target.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as up:
                peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self.pump(peer, up)
            return
        parts = urllib.parse.urlsplit(target)
        path = parts.path + ("?" + parts.query if parts.query else "")
        rest = rest.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)  # one request per connection will do here
        with socket.create_connection((parts.hostname, parts.port)) as up:
            up.sendall(f"{method} {path} {version}\r\n".encode() + rest)
            self.pump(peer, up)


def nginx():
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


class Http2(Process):
    """nginx with TLS and HTTP/2 in front of an http:// URL; requests() says what came over which connection."""

    def __init__(self, directory, chain, url):
        directory.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        host, upstream_port = address(url)
        self.access = directory / "access.log"
        temp = "".join(f" {kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (directory / "nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid {directory}/pid; error_log stderr;\nevents {{ worker_connections 1024; }}\n"
            f"http {{ log_format x '$connection $server_protocol $request_method $uri'; access_log {self.access} x;{temp}\n"
            f" server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {chain[0]}; ssl_certificate_key {chain[1]};\n"
            f"  client_max_body_size 0; location / {{ proxy_pass http://{host}:{upstream_port}; proxy_http_version 1.1;\n"
            "   proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 300s; } } }\n")
        super().__init__([nginx(), "-p", directory, "-c", directory / "nginx.conf"], directory / "nginx.log")
        self.url = f"https://127.0.0.1:{port}"
        until(lambda: self.alive() and not socket.socket().connect_ex(("127.0.0.1", port)), "nginx listens")

    def requests(self):
        """[(connection, protocol, method, path)] of the answers that have ended."""
        return [tuple(line.split(" ")) for line in self.access.read_text().splitlines()]
