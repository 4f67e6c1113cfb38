"""`python -m captioner`."""

from captioner.cli import run

if __name__ == "__main__":
    run()
