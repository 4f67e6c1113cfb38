"""strace looks at every command: no socket of the internet is opened, and no file is written outside its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from attack_suite.process_attacks import problems, trace_all
from attack_suite.system_trace import can_trace, foreign_files, read_trace

TRACE = """\
7 openat(AT_FDCWD</srv/me>, "notes.txt", O_RDONLY|O_CLOEXEC) = 3</srv/me/notes.txt>
7 openat(AT_FDCWD</srv/me>, "made.txt", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</srv/me/made.txt>
7 openat(AT_FDCWD</srv/me>, "/etc/passwd", O_WRONLY|O_CREAT, 0666) = -1 EACCES (Permission denied)
8 openat(AT_FDCWD</srv/me>, "/dev/null", O_RDWR) = 4</dev/null>
8 mkdir("cache", 0777) = 0
8 renameat2(AT_FDCWD</srv/me>, "made.txt", AT_FDCWD</srv/me>, "/var/device-id", RENAME_NOREPLACE) = 0
8 socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0) = 5<UNIX:[1]>
9 socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, IPPROTO_IP) = 5<UDP:[2]>
9 connect(5<UDP:[2]>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}, 16) = 0
9 sendto(6, "", 0, 0, {sa_family=AF_INET6, inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28) = -1 EPERM (No)
"""


def test_a_trace_shows_what_was_written_and_whom_it_talked_to() -> None:
    trace = read_trace(TRACE, Path("/srv/me"))
    names = ("/srv/me/made.txt", "/srv/me/cache", "/dev/null", "/var/device-id")
    assert trace.written == {Path(name) for name in names}
    assert foreign_files(trace, Path("/srv/me")) == ["/var/device-id"]
    assert len(trace.sockets) == 1 and "AF_INET," in trace.sockets[0]
    assert trace.addresses == {"192.0.2.1", "2001:db8::1"}


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
def test_no_command_uses_the_network_or_writes_foreign_files(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    names = set()
    for name, trace in trace_all(folder):
        assert problems(name, trace, folder) == [], name
        names.add(name)
    assert names >= {"caption", "overlay", "evaluate", "score", "train", "export", "serve"}
