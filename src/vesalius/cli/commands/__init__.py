"""What the command line offers, declared with light imports: a command imports what does its work when it runs."""
