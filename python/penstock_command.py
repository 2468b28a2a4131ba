"""The command `penstock` and `python -m penstock_command`; report a package that cannot load."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; a failure or Ctrl-C while it is imported ends it without a traceback."""
    try:
        try:
            from penstock.cli import main as run
        except ImportError as error:
            if sys.flags.dev_mode:
                raise
            sys.exit(f"penstock: {error}")
        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
