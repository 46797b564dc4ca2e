"""`python -m vesalius` is the `vesalius` command."""

from vesalius.cli import main

if __name__ == "__main__":
    main()
