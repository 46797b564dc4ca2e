"""What runs of the functions benchmark write."""
