"""MariaDB and slurmdbd for the test cluster, in its folder, on its own ports."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.cluster.processes import Daemon, start, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SETUP = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'slurm';
CREATE USER IF NOT EXISTS slurm@127.0.0.1 IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
FLUSH PRIVILEGES;
"""


def start_database(folder: Path, port: int, user: str, env: Mapping[str, str]) -> Daemon:
    """An empty MariaDB with slurmdbd's database. Returns when it answers."""
    data = folder / "database"
    if not data.exists():
        data.mkdir()
        install = shutil.which("mariadb-install-db") or "mysql_install_db"
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", f"--user={user}", "--skip-test-db",
             "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M",
             "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"],
            check=True, capture_output=True, env=dict(env),
        )  # fmt: skip
    socket = folder / "database.socket"
    daemon = start(
        "database",
        [shutil.which("mariadbd") or "mysqld", "--no-defaults", f"--datadir={data}", f"--user={user}",
         f"--socket={socket}", f"--port={port}", "--bind-address=127.0.0.1", "--skip-name-resolve",
         f"--pid-file={folder}/database.pid", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M",
         "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-lock-wait-timeout=900"],
        folder / "logs" / "database.log",
        env,
    )  # fmt: skip
    client = [shutil.which("mariadb") or "mysql", "--no-defaults", f"--socket={socket}", "--user=root"]

    def answers() -> bool:
        if not daemon.alive:
            raise RuntimeError(f"the database ended: see {folder}/logs/database.log")
        return subprocess.run(client, input=SETUP.encode(), capture_output=True, check=False).returncode == 0

    wait_for(answers, "the database", every=0.2)
    return daemon


def start_slurmdbd(folder: Path, env: Mapping[str, str]) -> Daemon:
    """slurmdbd, answering."""
    daemon = start("slurmdbd", ["slurmdbd", "-D"], folder / "logs" / "slurmdbd.out", env)

    def answers() -> bool:
        if not daemon.alive:
            raise RuntimeError(f"slurmdbd ended: see {folder}/logs/slurmdbd.log")
        return subprocess.run(
            ["sacctmgr", "-n", "show", "cluster"], env=dict(env), capture_output=True, check=False
        ).returncode == 0  # fmt: skip

    wait_for(answers, "slurmdbd", every=0.2)
    return daemon


def add_accounts(users: list[str], env: Mapping[str, str]) -> None:
    """One account `ml` and two QOS for these users, registered for the cluster `penstock`."""
    for words in (
        ["add", "cluster", "penstock"],
        ["add", "qos", "bulk"],
        ["add", "account", "ml", "Cluster=penstock", "Description=ml", "Organization=ml"],
        *(["add", "user", user, "Account=ml", "DefaultAccount=ml"] for user in users),
        ["modify", "account", "ml", "set", "qos=normal,bulk"],
    ):
        done = subprocess.run(
            ["sacctmgr", "-i", *words], env=dict(env), capture_output=True, text=True, check=False
        )
        if done.returncode != 0 and "already exist" not in done.stdout + done.stderr:
            raise RuntimeError(f"sacctmgr {' '.join(words)}: {done.stdout}{done.stderr}")


def missing() -> list[str]:
    """Programs that accounting needs and this machine lacks."""
    lacking = [name for name in ("slurmdbd", "sacctmgr") if not shutil.which(name, path=search_path())]
    if not any(shutil.which(name, path=search_path()) for name in ("mariadbd", "mysqld")):
        lacking.append("mariadbd")
    return lacking


def search_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin"
