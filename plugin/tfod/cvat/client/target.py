"""What is asked of a server: a task, a job or a project."""

from __future__ import annotations

from dataclasses import dataclass

from tfod.cvat.client.server import Server, ServerError
from tfod.errors import TfodError

TASK, JOB, PROJECT = "task", "job", "project"
KINDS = (TASK, JOB, PROJECT)


@dataclass(frozen=True)
class Target:
    """A task, a job or a project by its number."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def path(self) -> str:
        """Where the server has it."""
        return f"/api/{self.kind}s/{self.number}"

    def retrieve(self, server: Server) -> dict[str, object]:
        """What the server says of it.

        Raises:
            TfodError: it is not there, or not for us.
        """
        try:
            found = server.get(self.path)
        except ServerError as error:
            if error.status == 404:
                raise TfodError(
                    f"{server.host} has no {self}, or does not show it to you; look at the number "
                    "in the address of its page, and at --org"
                ) from None
            raise
        with server.expected():
            about = dict(found)
            if about["id"] != self.number:
                raise ValueError(f"{self} has the number {about['id']}")
            return about
