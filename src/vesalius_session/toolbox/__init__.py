"""The helper libraries that a language model finds in its toolbox and in the scope of its programs."""
