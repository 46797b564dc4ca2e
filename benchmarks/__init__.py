"""Side-by-side timings: two things measured in one run, reported as a ratio, after their results were shown to
agree.
"""
