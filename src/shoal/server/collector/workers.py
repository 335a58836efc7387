"""Several processes that take reports at one address, over a database that they share.

Each is a collector of its own with respect to the database, so each report counts once, whichever
process it comes to (see `shoal.server.storage.postgres`). The first has the console and does the
housekeeping. The others take reports only; they end with it, and are started again if they die.
Their folders go with them: a key that nobody turns on would open later states of the database.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import threading
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from shoal.errors import InputError
from shoal.server.collector.service import Collector
from shoal.server.core.listeners import Listener, leave, run
from shoal.server.core.observability import LOG
from shoal.server.core.settings import Settings
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import OBLIVIOUS_FILE, SIGNING_FILE
from shoal.support.disk import Disk

__all__ = ["Workers", "check_workers"]

_PAUSE = 1.0
"""Seconds before a process that died is started again."""


def check_workers(settings: Settings) -> None:
    """Refuse several processes without a database: a folder is for one."""
    if settings.workers > 1 and not settings.database:
        raise InputError(
            f"{settings.workers} workers need a database that they share: set database, or leave"
            " workers at 1."
        )


class Workers:
    """The processes beside the first one; use it as a context.

    Parameters
    ----------
    folder
        The data folder of the first process; the others have folders in it.
    settings
        How it runs.
    bound
        The socket at which all of them take reports.
    """

    def __init__(self, folder: Path, settings: Settings, bound: socket.socket) -> None:
        self._folder, self._settings, self._bound = folder, settings, bound
        self._processes: dict[int, BaseProcess] = {}
        self._stopping = threading.Event()
        # Held open by this process alone: when it ends, however it ends, the others see it.
        self._ended, self._alive = multiprocessing.Pipe(duplex=False)
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start the processes; the first one runs by now and has made the keys."""
        for folder in self._folder.glob("worker-*"):  # of processes that were killed
            shutil.rmtree(folder)
        for number in range(2, self._settings.workers + 1):
            self._start(number)
        if self._processes:
            self._watching.start()

    def _start(self, number: int) -> None:
        folder = self._folder_of(number)
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in (CROWD_KEY_FILE, SIGNING_FILE, OBLIVIOUS_FILE):
            if (self._folder / name).exists():
                shutil.copy2(self._folder / name, folder / name)
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(folder, self._settings, self._bound, self._ended)
        )
        process.start()
        self._processes[number] = process

    def _folder_of(self, number: int) -> Path:
        return self._folder / f"worker-{number}"

    def _watch(self) -> None:
        while not self._stopping.is_set():
            wait([one.sentinel for one in self._processes.values()], timeout=_PAUSE)
            for number, process in list(self._processes.items()):
                if not process.is_alive() and not self._stopping.wait(_PAUSE):
                    LOG.error("a worker ended and is started again", extra={"facts": {
                        "worker": number, "exit": process.exitcode}})  # fmt: skip
                    self._start(number)

    def __enter__(self) -> Workers:
        return self

    def stop(self) -> None:
        """Tell the processes to stop, and start none again."""
        self._stopping.set()
        for process in list(self._processes.values()):
            process.terminate()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._watching.is_alive():
            self._watching.join()
        self.stop()
        for number, process in self._processes.items():
            process.join(self._settings.shutdown_timeout)
            process.kill()  # if it has not ended
            process.join()
            shutil.rmtree(self._folder_of(number))
        if self._processes:
            Disk().sync_folder(self._folder)
        for end in (self._ended, self._alive):
            end.close()


def _work(folder: Path, settings: Settings, bound: socket.socket, ended: Connection) -> None:
    """Take reports until told to stop, or until the first process is gone."""
    worker = Collector(folder, settings, housekeeper=False)

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(ended.fileno(), os.kill, os.getpid(), signal.SIGTERM)

    listener = Listener("public", settings.public, lambda: worker.public, bound)
    run(worker, [listener], begin=begin)
    leave(worker)
