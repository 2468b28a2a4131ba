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
            sys.exit(f"penstock: {missing_package(error) or error}")
        run()
    except KeyboardInterrupt:
        sys.exit(130)


def missing_package(error: Exception) -> str | None:
    """Describe the lack of a package that pip can install; ``None`` for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    module = "cffi" if error.name == "_cffi_backend" else error.name
    package = module.partition(".")[0]
    if package == "penstock" or package in sys.stdlib_module_names:
        return None
    command = " ".join(["penstock", *sys.argv[1:2]])
    return f"{command} needs {module}, which is not installed: pip install -U {package}"


if __name__ == "__main__":
    main()
