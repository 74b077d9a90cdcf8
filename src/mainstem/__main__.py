"""Run the command ``mainstem`` as ``python -m mainstem``."""

from mainstem.cli import main

if __name__ == "__main__":
    main()
