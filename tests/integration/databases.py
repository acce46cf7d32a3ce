"""Databases of a test's own, which gateways share: Database.settings() is what a gateway is told."""
import json
import sqlite3
import subprocess

from harness import clean_env


class Sqlite:
    kind = "sqlite"

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "shared.db"

    def settings(self):
        return {"STORE_STATE_FILE": self.path}

    def rows(self, sql):
        """What a statement finds, as dicts."""
        db = sqlite3.connect(self.path, timeout=30)
        db.row_factory = sqlite3.Row
        try:
            with db:
                return [dict(row) for row in db.execute(sql).fetchall()]
        finally:
            db.close()


class Postgres:
    """A schema in the server of this worker."""
    kind = "postgres"
    made = 0

    def __init__(self, directory, server):
        directory.mkdir(parents=True, exist_ok=True)
        Postgres.made += 1
        self.server, self.schema = server, f"test{Postgres.made}"
        self.psql(f"CREATE SCHEMA {self.schema}")
        self.url_file = directory / "database-url"
        self.url_file.write_text(self.url + "\n")
        self.url_file.chmod(0o600)

    @property
    def url(self):
        return f"{self.server.url}&options=-csearch_path%3D{self.schema}"

    def settings(self):
        return {"STORE_DATABASE_URL_FILE": self.url_file}

    def psql(self, sql):
        done = subprocess.run([self.server.bin / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", self.server.url], text=True, capture_output=True,
                              input=f"SET search_path = {self.schema};\n{sql}", env=clean_env(), timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, sql):
        if sql.lstrip().upper().startswith("SELECT"):
            return [json.loads(line) for line in self.psql(f"SELECT row_to_json(r) FROM ({sql}) r;").splitlines()]
        self.psql(sql + ";")
        return []
