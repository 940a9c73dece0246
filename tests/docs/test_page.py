"""The pages whose commands are run (`tests.docs.page`), and what runs them."""

from __future__ import annotations

import fcntl
import os
import pwd
import tempfile
from pathlib import Path

import pytest
from tests.cluster.place import job_user
from tests.docs import page

CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = (CHECKOUT / "docs/tutorial.md").read_text()
FICLONE = 0x40049409
"""An ioctl of linux/fs.h."""
SAMPLE = """# Sample

```sh
word='of a session'
pipx install penstock
```

## It goes on

```sh
echo "$PWD, a variable $word, account $(id -u)" >&2
cat <<END
20261127-0a1b2c3d in 4.1 s
END
false  # ends with 1
```

Words between both.

```text
/home/you/sample, a variable of a session, account {account}
20260101-00000000 in 1 min 02 s
```
"""
INSTEAD = {"pipx install penstock": "true"}


@pytest.fixture
def sample() -> str:
    return SAMPLE.format(account=pwd.getpwnam(job_user()).pw_uid)


def test_a_page_is_one_session_of_an_ordinary_account_and_its_outputs_are_compared(sample: str) -> None:
    session = page.blocks(sample)
    assert [(block.section, block.line) for block in session] == [("Sample", 4), ("It goes on", 11)]
    printed = page.run(session, "sample", instead=INSTEAD)
    assert page.differences(sample, session, printed) == ""
    assert page.written(sample, session, printed) == sample, "what varies alone is not written anew"


def test_an_output_that_the_page_does_not_show_is_named_and_written(sample: str) -> None:
    text = sample.replace("sample, a variable of", "sample, another variable of")
    session = page.blocks(text)
    printed = page.run(session, "sample", instead=INSTEAD)
    assert "-/home/you/sample, another variable of a session" in page.differences(text, session, printed)
    text = page.written(text, session, printed)
    assert page.differences(text, page.blocks(text), printed) == ""
    assert text.count("20261127-0a1b2c3d in 4.1 s") == 2


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ("true\nfalse", "line 2, ended with 1"),
        ("false  # ends with 4", "it ended with 1, not with 4"),
        ("true  # ends with 4", "it ended with 0, not with 4"),
        ("penstock nonsense", "there is no command nonsense"),
    ],
)
def test_a_command_that_ends_otherwise_than_the_page_says_ends_the_test(commands: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        page.run(page.blocks(f"```sh\n{commands}\n```\n"), "sample")


def test_what_stands_for_a_command_that_the_page_does_not_have_ends_the_test(sample: str) -> None:
    with pytest.raises(AssertionError, match="no block of the page has apt-get"):
        page.run(page.blocks(sample), "sample", instead={"apt-get": "true"})


@pytest.mark.thorough  # half a minute; `make test` runs the page's first sections on a cluster
@pytest.mark.timeout(600)
def test_the_tutorial_prints_what_it_shows() -> None:
    """But for its section on SLURM, which tests/slurm/test_tutorial.py runs."""
    session = [block for block in page.blocks(TUTORIAL) if block.section != "On SLURM"]
    assert len(session) < len(page.blocks(TUTORIAL))
    printed = page.run(session, "tutorial")
    if shares_blocks("/tmp"):
        pytest.skip("every command ended as it should; outputs are compared where files become hard links")
    assert page.differences(TUTORIAL, session, printed) == ""


def shares_blocks(folder: str) -> bool:
    """Whether the file system there makes reflinks: then unchanged files are no hard links, and are read."""
    with tempfile.TemporaryFile(dir=folder) as source, tempfile.TemporaryFile(dir=folder) as copy:
        source.write(os.urandom(1 << 16))
        source.flush()
        try:
            fcntl.ioctl(copy.fileno(), FICLONE, source.fileno())
        except OSError:
            return False
        return True
