"""`python -m penstock`: the command `penstock`."""

from penstock_command import main

if __name__ == "__main__":
    main()
