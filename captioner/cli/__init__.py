"""The command line: one small file per command, which is loaded only when the command is used."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import Any, NoReturn

import click

from captioner import __version__
from captioner.errors import CaptionerError, UsageError, nearest
from captioner.installation import how_to_install
from captioner.terminal import printable, say

# numpy would start one thread per processor, and has nothing for them to do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# command: (module, line of help). The help is here, so that `captioner --help` does not load the modules.
COMMANDS = {
    "caption": ("captioner.cli.caption", "Write a sentence about each picture."),
    "overlay": ("captioner.cli.overlay", "Draw, for every word, where the model looked."),
    "scale": ("captioner.cli.scale", "Caption shards of pictures on a Ray cluster."),
    "serve": ("captioner.cli.serve", "Serve captions over HTTP, and a page to drop photos on."),
    "web": ("captioner.cli.web", "Write a folder that captions photos in the browser."),
    "models": ("captioner.cli.models", "List the available models."),
    "evaluate": ("captioner.cli.evaluate", "Caption a split, and measure captions, likelihood and attention."),
    "score": ("captioner.cli.score", "Score the captions of any system against references."),
    "data": ("captioner.cli.data", "Fetch, check or divide a data set, or create a synthetic one."),
    "features": ("captioner.cli.features", "Encode the images of a config into the feature cache."),
    "train": ("captioner.cli.train", "Train a model on photos with captions, or from a config."),
    "export": ("captioner.cli.export", "Turn a training run into a bundle that runs without torch."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            close = nearest(name, COMMANDS)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint} Commands: {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="captioner")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; goes before the command.")
def main(debug: bool) -> None:
    """Captions for pictures, and where the model looked for each word."""


def run() -> None:
    """The entry point. An error is one sentence; --debug shows its traceback too."""
    debug = "--debug" in sys.argv[1:]
    try:
        code = main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt) as stopped:  # a command may say how to go on
        say(str(stopped) or "stopped")
        _leave(130)
    except click.ClickException as error:
        message = "\n".join(map(printable, error.message.split("\n")))  # click's lists of choices are lines
        object.__setattr__(error, "message", message)
        error.show()
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if debug or missing in ("", "captioner"):
            raise
        say(f"captioner: this needs the package {missing!r}, which is not installed: {how_to_install(missing)}")
        sys.exit(2)
    except CaptionerError as error:
        if debug:
            raise
        say(f"captioner: {error}")
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:  # a full disk, or a file without permission
        if debug:
            raise
        if error.errno == errno.EPIPE:  # the reader of standard output has left
            _leave(1)
        file = error.filename2 or error.filename  # in a copy, the second is the file being written
        say(f"captioner: {f'{file}: ' if file else ''}{error.strerror or error or type(error).__name__}")
        sys.exit(1)
    except MemoryError:
        if debug:
            raise
        say("captioner: there is not enough memory for this")
        sys.exit(1)


def _leave(code: int) -> NoReturn:
    """End the program without waiting for threads: one may be inside a graph that takes very long."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    os._exit(code)
